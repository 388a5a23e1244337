//! Events on the loop of tokio.
#![cfg(feature = "tokio")]
mod support;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use weft::{Event, EventStream, Mode, Run};

fn on_a_loop<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
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
        assert_eq!(error.status(), weft::Status::State);
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
