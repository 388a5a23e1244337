//! Links libweft as pkg-config describes it.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_SYSROOT_DIR");
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation needs no library
    }
    for flag in pkg_config().split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        }
    }
}

fn pkg_config() -> String {
    let command = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = Command::new(&command).args(["--libs", "weft >= 0.2", "weft < 0.3"]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => fail(&String::from_utf8_lossy(&output.stderr)),
        Err(error) => fail(&format!("{command} cannot be started: {error}")),
    }
}

fn fail(reason: &str) -> ! {
    eprintln!("libweft 0.2 was not found: {reason}\nInstall libweft, or set PKG_CONFIG_PATH to the folder of weft.pc.");
    std::process::exit(1);
}
