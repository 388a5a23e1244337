//! Runs over meshes: ranks that serve, events of the start, logs, and cancelled runs.
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use weft::{public_key, Event, LogLevel, Mesh, Mode, Run, Status};

#[test]
fn a_start_that_returns_at_once_reports_by_events() -> weft::Result<()> {
    let plan = support::small().ranks(2).build(&mut support::model()?)?;
    let mesh = Mesh::builder().listen()?;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let builder = Run::builder(&plan).mesh(&mesh);
    let mut run = builder.log(LogLevel::Info, move |level, line| log.lock().unwrap().push((level, line.to_string()))).begin()?;
    assert_eq!(run.step(&support::batch()?, Mode::Train).unwrap_err().status(), Status::State);

    let endpoint = mesh.join_endpoint();
    let other = thread::spawn(move || {
        let mut mesh = Mesh::builder().endpoint(&endpoint).join()?;
        let mut service = mesh.service().threads(1).begin()?;
        let mut names = Vec::new();
        while let Some(event) = service.poll(None)? {
            names.push(match event {
                Event::Joined { rank: 1, missing: 0, ranks: 2, .. } => "joined",
                Event::Started { rank: 1, ranks: 2 } => "started",
                Event::Ended => "ended",
                _ => "other",
            });
        }
        Ok::<_, weft::Error>(names)
    });
    let first = run.poll_owned(None)?;
    assert!(matches!(first, Some(Event::Joined { rank: 1, ranks: 2, missing: 0, .. })), "{first:?}");
    let second = run.poll_owned(None)?;
    assert!(matches!(second, Some(Event::Started { rank: 0, ranks: 2 })), "{second:?}");
    run.step(&support::batch()?, Mode::Train)?;
    drop(run);
    assert_eq!(other.join().unwrap()?, ["joined", "started", "ended"]);
    assert!(lines.lock().unwrap().iter().any(|(level, _)| *level == LogLevel::Info), "{lines:?}");
    Ok(())
}

#[test]
fn a_panic_of_a_log_closure_is_reported_and_the_run_goes_on() -> weft::Result<()> {
    let plan = support::small().ranks(2).build(&mut support::model()?)?;
    let mesh = Mesh::builder().listen()?;
    let endpoint = mesh.join_endpoint();
    let other = thread::spawn(move || Mesh::builder().endpoint(&endpoint).join()?.serve(None));
    let reported = Arc::new(AtomicUsize::new(0));
    let (counted, others) = (reported.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| match info.payload().downcast_ref::<&str>() {
        Some(&"no log") => drop(counted.fetch_add(1, Ordering::SeqCst)),
        _ => others(info),
    }));
    let lines = Arc::new(AtomicUsize::new(0));
    let counted = lines.clone();
    let log = move |_: LogLevel, _: &str| {
        counted.fetch_add(1, Ordering::SeqCst);
        panic!("no log")
    };
    let mut run = Run::builder(&plan).mesh(&mesh).log(LogLevel::Debug, log).start()?;
    run.step(&support::batch()?, Mode::Train)?;
    drop(run);
    other.join().unwrap()?;
    let lines = lines.load(Ordering::SeqCst);
    assert!(lines > 1, "{lines}");
    assert_eq!(reported.load(Ordering::SeqCst), lines);
    Ok(())
}

#[test]
fn a_run_over_a_mesh_has_the_bits_of_one_process() -> weft::Result<()> {
    let plan = support::small().ranks(2).build(&mut support::model()?)?;
    let mut single = Run::start(&plan)?;
    let loss = single.step(&support::batch()?, Mode::Train)?;
    let mesh = Mesh::builder().endpoint("tcp://127.0.0.1:0").listen()?;
    let endpoint = mesh.join_endpoint();
    let other = thread::spawn(move || Mesh::builder().endpoint(&endpoint).join()?.serve(None));
    let mut run = Run::builder(&plan).mesh(&mesh).start()?;
    assert_eq!(run.step(&support::batch()?, Mode::Train)?, loss);
    assert_eq!(run.digest()?, single.digest()?);
    drop(run);
    other.join().unwrap()
}

#[test]
fn a_canceller_ends_a_start_from_another_thread() -> weft::Result<()> {
    let plan = support::small().ranks(2).build(&mut support::model()?)?;
    let mesh = Mesh::builder().listen()?;
    let mut run = Run::builder(&plan).mesh(&mesh).begin()?;
    let canceller = mesh.canceller();
    thread::spawn(move || canceller.cancel()).join().unwrap();
    match run.poll(None)? {
        Some(Event::RunFailed { error, .. }) => assert_eq!(error.status(), Status::Canceled),
        other => panic!("{other:?}"),
    }
    assert!(run.poll(None)?.is_none(), "nothing follows");
    Ok(())
}

#[test]
fn a_canceller_ends_the_steps_of_one_process() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    let mesh = Mesh::builder().listen()?;
    let mut run = Run::builder(&plan).mesh(&mesh).start()?;
    run.step(&support::batch()?, Mode::Train)?;
    let canceller = mesh.canceller();
    let other = thread::spawn(move || canceller.cancel());
    let error = loop {
        if let Err(error) = run.step(&support::batch()?, Mode::Train) {
            break error;
        }
    };
    other.join().unwrap();
    assert_eq!(error.status(), Status::Canceled);
    Ok(())
}

#[test]
fn a_service_names_a_directory_that_is_no_path() -> weft::Result<()> {
    let mut mesh = Mesh::builder().endpoint("ipc:///nonexistent").join()?;
    let error = mesh.service().weights_dir("a\0b").serve().unwrap_err();
    assert_eq!(error.text(), "the path \"a\\0b\" contains a NUL");
    Ok(())
}

#[test]
fn a_lost_rank_is_named() -> weft::Result<()> {
    let mut run = support::run_whose_rank_left()?;
    let error = run.step(&support::batch()?, Mode::Train).unwrap_err();
    let failure = run.failure().expect("the facts");
    assert_eq!(failure.rank, Some(1), "{error}");
    assert_eq!(failure.stages, [1]);
    assert_eq!(failure.to_string(), error.text());
    Ok(())
}

#[test]
fn no_failure_contains_a_secret() -> weft::Result<()> {
    let secret = format!("{}\0", weft::new_key()?);
    let endpoint = format!("tcp://127.0.0.1:1?secret={secret}");
    for (name, error) in [
        ("the secret key", Mesh::builder().key(&secret).listen().map(drop).unwrap_err()),
        ("the secret key", public_key(&secret).unwrap_err()),
        ("the endpoint", Mesh::builder().endpoint(&endpoint).join().map(drop).unwrap_err()),
    ] {
        assert_eq!(error.text(), format!("{name} contains a NUL"));
        assert_eq!(error.status(), Status::Invalid);
    }
    Ok(())
}

#[test]
fn keys_are_made_in_pairs() -> weft::Result<()> {
    let secret = weft::new_key()?;
    assert_eq!((secret.len(), public_key(&secret)?.len()), (64, 64));
    assert_eq!(public_key("abc").unwrap_err().status(), Status::Invalid);
    Ok(())
}
