//! Asks pkg-config where weft is.
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_SYSROOT_DIR");
    let out = Command::new("pkg-config").args(["--libs-only-L", "weft"]).output().expect("pkg-config runs");
    assert!(out.status.success(), "pkg-config: {}", String::from_utf8_lossy(&out.stderr));
    for flag in String::from_utf8_lossy(&out.stdout).split_whitespace() {
        println!("cargo:rustc-link-search=native={}", flag.trim_start_matches("-L"));
    }
    println!("cargo:rustc-link-lib=dylib=weft");
}
