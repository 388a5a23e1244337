//! Events on the loop of tokio.
#![cfg(feature = "tokio")]
mod support;

use std::future::Future;
use std::os::unix::io::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use tokio::io::{unix::AsyncFd, Interest};
use weft::{Desc, Event, EventStream, Generator, Mode, Model, Op, OpShape, Plan, Preset, Run, SequenceConfig, Status, StepKind};

fn on_a_loop<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Polls a future once.
fn once<T>(future: impl Future<Output = T>) -> Poll<T> {
    struct Ignored;
    impl Wake for Ignored {
        fn wake(self: Arc<Self>) {}
    }
    Box::pin(future).as_mut().poll(&mut Context::from_waker(&Arc::new(Ignored).into()))
}

#[test]
fn every_step_ends_with_an_event() -> weft::Result<()> {
    let plan = support::small().ranks(2).build(&mut support::model()?)?;
    let mut losses = Vec::new();
    for threads in [0, 1] {
        losses.push(on_a_loop(async {
            let mut run = EventStream::new(Run::builder(&plan).threads(threads).start()?)?;
            assert!(run.next().await.is_none(), "nothing is in progress");
            let batch = support::batch()?;
            let mut losses = Vec::new();
            for tag in 0..10 {
                run.submit(&batch, Mode::Train, tag)?;
            }
            while let Some(event) = run.next().await {
                if let Event::Done { tag, loss, .. } = event? {
                    assert_eq!(tag, losses.len() as u64);
                    losses.push(loss);
                }
            }
            losses.push(run.step(&batch, Mode::Train).await?);
            Ok::<_, weft::Error>(losses)
        })?);
    }
    assert_eq!(losses[0].len(), 11);
    assert_eq!(losses[0], losses[1]);
    Ok(())
}

#[test]
fn a_step_waits_for_the_events_of_others() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    on_a_loop(async {
        let mut run = EventStream::new(Run::builder(&plan).threads(1).start()?)?;
        let batch = support::batch()?;
        run.submit(&batch, Mode::Train, 7)?;
        let error = run.step(&batch, Mode::Train).await.unwrap_err();
        assert_eq!(error.status(), Status::State);
        while run.next().await.is_some() {}
        run.step(&batch, Mode::Train).await.map(drop)
    })
}

#[test]
fn other_tasks_run_between_events() -> weft::Result<()> {
    let plan = support::small().ranks(2).build(&mut support::model()?)?;
    for threads in [0, 1] {
        on_a_loop(async {
            let turns = Arc::new(AtomicUsize::new(0));
            let counted = turns.clone();
            let other = tokio::spawn(async move {
                loop {
                    counted.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            });
            let mut run = EventStream::new(Run::builder(&plan).threads(threads).start()?)?;
            // A thread may end a step before the step is awaited, and then no other task runs. A stream that blocked the loop would stay here.
            while turns.load(Ordering::SeqCst) <= 20 {
                run.step(&support::batch()?, Mode::Train).await?;
            }
            other.abort();
            run.into_run().digest().map(drop)
        })?;
    }
    Ok(())
}

#[test]
fn a_stream_ends_after_a_blocking_step_that_failed() -> weft::Result<()> {
    let shape = |inputs: &[Desc], _: &[Desc]| Ok(OpShape { output: inputs[0].clone(), stash: None });
    let mut model = Model::new()?;
    model.add_op(Op::new("broken", shape, |_| Err("it is broken".into())).backward(|_| Ok(())))?;
    let x = model.input("x", &Desc::f32([1, 1]))?;
    let y = model.input("y", &Desc::f32([1, 1]))?;
    let out = model.linear("out", x, 1)?;
    let out = model.unary("broken", out)?;
    model.binary("mse", out, y)?;
    let plan = support::small().build(&mut model)?;
    for threads in [0, 1] {
        on_a_loop(async {
            let mut run = EventStream::new(Run::builder(&plan).threads(threads).start()?)?;
            let error = Run::step(&mut run, &support::batch()?, Mode::Train).unwrap_err();
            assert_eq!(error.status(), Status::User);
            assert!(matches!(once(run.next()), Poll::Ready(None)), "nothing follows");
            Ok::<_, weft::Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn a_stream_has_the_events_of_a_run_that_replaces_another_one() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    on_a_loop(async {
        let start = || Run::builder(&plan).threads(1).start();
        let mut run = EventStream::new(start()?)?;
        let loss = run.step(&support::batch()?, Mode::Train).await?;
        *run = start()?;
        assert_eq!(run.step(&support::batch()?, Mode::Train).await?, loss);
        Ok(())
    })
}

#[test]
fn a_stream_ends_after_a_failure_of_the_poll_itself() -> weft::Result<()> {
    let mut decoder = Preset::decoder("gpt-nano:blocks=1,width=8,heads=2,context=8", 1, 0, false)?;
    let plan = Plan::builder().micro_batches(1).step_kinds([StepKind::Forward]).build(&mut decoder.model)?;
    let mut run = Run::start(&plan)?;
    std::mem::forget(Generator::new(&mut run)?); // the run cannot be polled any more
    on_a_loop(async {
        let mut run = EventStream::new(run)?;
        match run.next().await {
            Some(Err(error)) => assert_eq!(error.status(), Status::State),
            other => panic!("{other:?}"),
        }
        assert!(run.next().await.is_none());
        Ok(())
    })
}

#[test]
fn a_generator_does_not_block_a_loop() -> weft::Result<()> {
    let mut decoder = Preset::decoder("gpt-nano:blocks=1,width=8,heads=2,context=8", 1, 0, false)?;
    let plan = Plan::builder().micro_batches(1).step_kinds([StepKind::Forward]).build(&mut decoder.model)?;
    let mut generator = Generator::new(Run::builder(&plan).threads(1).start()?)?;
    generator.add(&[1, 2], &SequenceConfig { limit: 3, ..SequenceConfig::default() })?;
    on_a_loop(async {
        let fd = generator.run().fd().expect("a descriptor").as_raw_fd();
        let fd = AsyncFd::with_interest(fd, Interest::READABLE).unwrap();
        for index in 0..3 {
            let token = loop {
                if let Some(token) = generator.poll(Some(Duration::ZERO))? {
                    break token;
                }
                fd.readable().await.unwrap().clear_ready();
            };
            assert_eq!(token.index, index);
        }
        Ok(())
    })
}

#[test]
fn a_step_of_a_run_that_has_failed_leaves_no_events() -> weft::Result<()> {
    let run = support::run_whose_rank_left()?;
    on_a_loop(async {
        let fd = AsyncFd::with_interest(run.fd().expect("a descriptor").as_raw_fd(), Interest::READABLE).unwrap();
        fd.readable().await.unwrap().retain_ready(); // the event of the failure is the first one
        drop(fd);
        let mut run = EventStream::new(run)?;
        assert_eq!(run.step(&support::batch()?, Mode::Train).await.unwrap_err().status(), Status::Canceled);
        assert!(matches!(once(run.next()), Poll::Ready(None)), "nothing follows");
        Ok(())
    })
}
