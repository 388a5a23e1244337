//! Ranks as processes: `Mesh::spawn` starts this program again, so it has no test harness.
use std::env::{current_exe, set_var, var, var_os};
use std::io::{Read, Write};
use std::mem::forget;
use std::net::{TcpListener, TcpStream};
use std::os::unix::io::{FromRawFd, RawFd};
use std::process::{exit, id, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use weft::{Desc, Event, Forward, LogLevel, Mesh, Model, Op, OpShape, Plan, Run, Status, Tensor};

const MARK: &str = "WEFT_JOIN";
/// The name of one of the programs.
const PROGRAM: &str = "WEFT_TEST_PROGRAM";

static SERVES: AtomicBool = AtomicBool::new(false);
static LOGGED: AtomicBool = AtomicBool::new(false);

/// Copies its input. On ranks of copies of the program, it checks their environment and their settings.
fn checked() -> Op {
    Op::new(
        "checked",
        |inputs, _params| Ok(OpShape { output: inputs[0].clone(), stash: None }),
        |mut call: Forward| {
            if let Some(endpoint) = var_os(MARK) {
                return Err(format!("{MARK} is {endpoint:?}").into());
            }
            if SERVES.load(SeqCst) && !LOGGED.load(SeqCst) {
                return Err("the service of the rank has no log".into());
            }
            call.output.as_mut_slice::<f32>()?.copy_from_slice(call.inputs[0].as_slice::<f32>()?);
            Ok(())
        },
    )
}

fn plan(ranks: u32) -> weft::Result<Plan> {
    let mut model = Model::new()?;
    model.add_op(checked())?;
    let mut last = model.input("x", &Desc::f32([1, 1]))?;
    for _ in 0..ranks {
        last = model.unary("checked", last)?;
    }
    model.output(last)?;
    Plan::builder().ranks(ranks).micro_batches(1).micro_batch_size(2).build(&mut model)
}

/// No process would end before the test is ended, if it waited for its join timeout.
fn spawn(plan: &Plan) -> weft::Result<Mesh> {
    let log = |_: LogLevel, _: &str| LOGGED.store(true, SeqCst);
    Mesh::builder().join_timeout(Duration::from_secs(3600)).spawn(plan, |mesh| {
        SERVES.store(true, SeqCst);
        mesh.service().plan(plan).log(LogLevel::Info, log).serve()
    })
}

fn forward(run: &mut Run) -> weft::Result<()> {
    let outputs = run.forward(&[Tensor::from_vec([2, 1], vec![3.0f32, 4.0])?])?;
    assert_eq!(outputs[0].as_slice::<f32>()?, [3.0, 4.0]);
    Ok(())
}

/// Where a copy of the program connects to rank 0.
const CONTROL: &str = "WEFT_TEST_CONTROL";

/// In rank 0, before it spawns copies.
fn control() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_var(CONTROL, listener.local_addr().unwrap().to_string());
    listener
}

fn connect() -> TcpStream {
    TcpStream::connect(var(CONTROL).unwrap()).unwrap()
}

/// Waits until the process at the other end has ended.
fn until_end(mut copy: TcpStream) {
    while matches!(copy.read(&mut [0]), Ok(1)) {}
}

/// The socket of a copy of the program that ends with rank 0.
fn parent() -> RawFd {
    var("WEFT_JOIN_PARENT").unwrap().parse().unwrap()
}

/// Rank 0 of three ranks, of which one joins. The connections of their processes: that of rank 1, which joins, and that of rank 2.
fn begin_joining(plan: &Plan, mesh: &Mesh, listener: &TcpListener) -> weft::Result<(Run, Vec<TcpStream>)> {
    let mut copies: Vec<_> = (1..3).map(|_| listener.accept().unwrap().0).collect();
    copies.sort_by_cached_key(|mut copy| {
        let mut id = [0; 4];
        copy.read_exact(&mut id).unwrap();
        u32::from_be_bytes(id)
    });
    copies[0].write_all(&[0]).unwrap();
    let mut run = Run::builder(plan).mesh(mesh).begin()?;
    while !matches!(run.poll(None)?, Some(Event::Joined { .. })) {}
    Ok((run, copies))
}

/// In a copy of the program, before it serves.
fn copy(name: &str, plan: &Plan) {
    match name {
        "loses a rank" => exit(3),
        // The other process has the socket until rank 0 ends.
        "loses a rank that has started a process" => {
            let socket = unsafe { Stdio::from_raw_fd(parent()) };
            Command::new("cat").stdin(socket).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            exit(3)
        }
        "ends a rank without its socket" => {
            drop(unsafe { TcpStream::from_raw_fd(parent()) });
            let mut rank0 = connect();
            rank0.write_all(&[0]).unwrap();
            until_end(rank0);
        }
        "drops its mesh beside a canceller" => forget(connect()),
        "drops a run that has not started" | "loses one of two ranks" => {
            let mut rank0 = connect();
            rank0.write_all(&id().to_be_bytes()).unwrap();
            if rank0.read(&mut [0]).unwrap() == 0 {
                exit(7);
            }
            forget(rank0);
        }
        "spawns again in a copy" => {
            let fails = |_: &mut Mesh| Mesh::builder().endpoint("none").join().map(drop);
            Mesh::builder().spawn(plan, fails).map(drop).unwrap_err();
            let error = Mesh::spawn(plan).map(drop).unwrap_err();
            write!(connect(), "{:?}: {error}", error.status()).unwrap();
            exit(3);
        }
        _ => {}
    }
}

/// What a program prints is what the test expects.
fn program(name: &str) -> weft::Result<()> {
    let plan = plan(if matches!(name, "drops a run that has not started" | "loses one of two ranks") { 3 } else { 2 })?;
    let is_copy = var_os(MARK).is_some();
    if is_copy {
        copy(name, &plan);
    }
    let listener = if is_copy { None } else { Some(control()) };
    let mesh = spawn(&plan)?;
    let listener = listener.expect("a copy does not return from Mesh::spawn");
    let accept = || listener.accept().unwrap().0;
    let begin = || Run::builder(&plan).mesh(&mesh).start();
    match name {
        "computes" => {
            forward(&mut begin()?)?;
            println!("{:?}", mesh.wait());
        }
        "waits with its run" => {
            let mut run = begin()?;
            forward(&mut run)?;
            let error = mesh.wait().unwrap_err();
            println!("{:?}: {error}", error.status());
        }
        "keeps only its run" => {
            let mut run = begin()?;
            drop(mesh);
            forward(&mut run)?;
        }
        "waits without a run" => println!("{:?}", mesh.wait()),
        "drops its mesh" => drop(mesh),
        "loses a rank" | "loses a rank that has started a process" => {
            let error = begin().map(drop).unwrap_err();
            assert_eq!(error.status(), Status::Peer);
            println!("{error}");
            println!("{}", mesh.wait().unwrap_err());
        }
        "ends a rank without its socket" => {
            let mut copy = accept();
            copy.read_exact(&mut [0]).unwrap();
            println!("{:?}", mesh.wait());
        }
        "drops its mesh beside a canceller" => {
            let copy = accept();
            let canceller = mesh.canceller();
            drop(mesh);
            until_end(copy);
            canceller.cancel();
        }
        "drops a run that has not started" => {
            let (run, copies) = begin_joining(&plan, &mesh, &listener)?;
            drop(run);
            copies.into_iter().for_each(until_end);
            println!("{:?}", mesh.wait());
        }
        "loses one of two ranks" => {
            let (mut run, mut copies) = begin_joining(&plan, &mesh, &listener)?;
            drop(copies.pop());
            while !matches!(run.poll(None)?, Some(Event::RunFailed { .. })) {}
            copies.into_iter().for_each(until_end); // it fails and prints "Peer", because the mesh is canceled
            drop(run);
            println!("{}", mesh.wait().unwrap_err());
        }
        "spawns again in a copy" => {
            let mut text = String::new();
            accept().read_to_string(&mut text).unwrap();
            println!("{text}");
        }
        // The process of rank 1 has the output of this one, which therefore ends with both.
        "ends early" => exit(0),
        other => panic!("there is no program {other}"),
    }
    Ok(())
}

fn test(name: &str, expected: &str) {
    let mut command = Command::new(current_exe().unwrap());
    command.env(PROGRAM, name).stderr(Stdio::inherit());
    let output = command.output().unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    assert_eq!(found, expected, "the output of the program that {name}");
    assert!(output.status.success(), "the program that {name}: {}", output.status);
}

fn main() {
    if let Ok(name) = var(PROGRAM) {
        if let Err(error) = program(&name) {
            println!("{:?}", error.status()); // its text has the process
            exit(1);
        }
        return;
    }
    test("computes", "Ok(())\n");
    let in_use = "State: the run of the mesh is still in use; drop it before Mesh::wait\n";
    test("waits with its run", &format!("Canceled\n{in_use}"));
    test("keeps only its run", "");
    test("waits without a run", "Ok(())\n");
    test("drops its mesh", "");
    let ended = "the process of rank 1 has ended: exit status: 3\nthe process of rank 1: exit status: 3\n";
    test("loses a rank", ended);
    test("loses a rank that has started a process", ended);
    test("ends a rank without its socket", "Ok(())\n");
    test("drops its mesh beside a canceller", "");
    test("drops a run that has not started", "Ok(())\n");
    test("loses one of two ranks", "Peer\nthe process of rank 2: exit status: 7\n");
    test("spawns again in a copy", "State: this process is a rank of Mesh::spawn, and starts no ranks; its service has failed\n");
    test("ends early", "Peer\n");
}
