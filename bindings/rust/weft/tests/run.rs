//! Steps, events, values and checkpoints of runs in one process.
mod support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use weft::{
    Checkpoint, Desc, Event, ExportConfig, Mode, Model, Op, OpShape, Part, Profile, Run, SaveOptions, Status, StepKind, Tensor,
    TensorInfo,
};

/// A new folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weft-rust-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tensor(name: &str, dims: impl Into<Vec<usize>>, dtype: &str) -> TensorInfo {
    TensorInfo { name: name.into(), dims: dims.into(), dtype: dtype.into() }
}

#[test]
fn threads_and_ranks_do_not_change_the_result() -> weft::Result<()> {
    let mut digests = Vec::new();
    for (ranks, threads) in [(1, 0), (2, 0), (2, 2)] {
        let plan = support::small().ranks(ranks).build(&mut support::model()?)?;
        let mut run = Run::builder(&plan).threads(threads).start()?;
        for _ in 0..3 {
            run.step(&support::batch()?, Mode::Train)?;
        }
        digests.push(run.digest()?);
    }
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[0], digests[2]);
    Ok(())
}

#[test]
fn a_rate_that_is_set_replaces_that_of_the_plan() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::builder(&plan).start()?;
    let before = run.digest()?;
    run.set_rate(0.0)?;
    run.step(&support::batch()?, Mode::Train)?;
    assert_eq!(run.digest()?, before);
    run.set_rate(0.1)?;
    run.step(&support::batch()?, Mode::Train)?;
    assert_ne!(run.digest()?, before);
    assert_eq!(run.set_rate(-1.0).err().map(|error| error.status()), Some(Status::Invalid));
    Ok(())
}

#[test]
fn a_run_has_its_own_profile() -> weft::Result<()> {
    let mut model = support::model()?;
    let profile = Profile::measure(&mut model, 2, 2, 1)?;
    let plan = support::small().ranks(2).build(&mut model)?;
    let mut run = Run::builder(&plan).threads(1).start()?;
    assert_eq!(run.profile(&profile).err().map(|error| error.status()), Some(Status::Invalid));
    run.trace(1000)?;
    for _ in 0..6 {
        run.step(&support::batch()?, Mode::Train)?;
    }
    assert_eq!(run.profile(&profile)?.nodes().len(), profile.nodes().len());
    Ok(())
}

#[test]
fn a_forward_step_delivers_outputs() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::start(&plan)?;
    let [x, _] = support::batch()?;
    run.submit(&[Some(&x), None], Mode::Forward, 3)?;
    let mut rows = Vec::new();
    while let Some(event) = run.poll(None)? {
        if let Event::MicroBatch { tag, outputs, .. } = &event {
            assert_eq!((*tag, outputs.len(), outputs.desc(0).dims), (3, 1, vec![2, 1]));
            rows.extend_from_slice(outputs.as_slice::<f32>(0)?);
            assert_eq!(outputs.as_slice::<i32>(0).unwrap_err().status(), Status::Invalid);
        }
    }
    run.submit(&[Some(&x), None], Mode::Forward, 3)?;
    let owned = run.events().collect::<weft::Result<Vec<_>>>()?;
    let copies: Vec<f32> = owned
        .iter()
        .filter_map(|event| if let Event::MicroBatch { outputs, .. } = event { Some(outputs) } else { None })
        .flat_map(|outputs| outputs.as_slice::<f32>(0).unwrap().to_vec())
        .collect();
    assert_eq!(rows.len(), 4);
    assert_eq!(copies, rows, "owned events keep their outputs");
    assert!(matches!(owned.last(), Some(Event::Done { tag: 3, .. })));
    let outputs = run.forward(&[Some(&x), None])?;
    assert_eq!(outputs.len(), 1);
    assert_eq!((outputs[0].desc().dims, outputs[0].as_slice::<f32>()?), (vec![4, 1], &rows[..]));
    Ok(())
}

#[test]
fn a_training_step_can_deliver_outputs() -> weft::Result<()> {
    let kinds = [StepKind::Train, StepKind::TrainOutputs, StepKind::Eval, StepKind::Forward];
    let plan = support::small().step_kinds(kinds).build(&mut support::model()?)?;
    let mut run = Run::start(&plan)?;
    let batch = support::batch()?;
    let expected = run.forward(&batch)?;
    let (loss, outputs) = run.step_outputs(&batch, Mode::Train)?;
    assert_eq!(outputs[0].as_slice::<f32>()?, expected[0].as_slice::<f32>()?);
    assert!(loss > 0.0);
    assert_eq!(run.step_outputs(&batch, Mode::Eval).unwrap_err().status(), Status::Invalid);
    Ok(())
}

#[test]
fn values_and_gradients_are_read_and_written() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::start(&plan)?;
    let bias = Tensor::from_vec([1], vec![2.5f32])?;
    run.write("out.bias", Part::Value, &bias)?;
    assert_eq!(run.read("out.bias", Part::Value)?.as_slice::<f32>()?, [2.5]);
    run.step(&support::batch()?, Mode::NoUpdate)?;
    assert_eq!(run.read("out.bias", Part::Value)?.as_slice::<f32>()?, [2.5]);
    assert_ne!(run.read("out.bias", Part::Grad)?.as_slice::<f32>()?, [0.0]);
    assert_eq!(run.read("x", Part::Grad)?.desc().dims, [4, 1]);
    let error = run.read("none", Part::Value).unwrap_err();
    assert_eq!((error.status(), error.text()), (Status::NotFound, "the model has no parameter or input 'none'"));
    Ok(())
}

#[test]
fn a_step_that_is_refused_does_not_change_the_shape_of_gradients() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::start(&plan)?;
    run.step(&support::batch()?, Mode::NoUpdate)?;
    let short = Tensor::from_vec([2, 1], vec![0.0f32; 2])?;
    run.submit(&[&short], Mode::Train, 0).unwrap_err();
    assert_eq!(run.read("x", Part::Grad)?.desc().dims, [4, 1]);
    run.step(&[&short], Mode::Train).unwrap_err();
    assert_eq!(run.read("x", Part::Grad)?.desc().dims, [4, 1]);
    Ok(())
}

#[test]
fn a_checkpoint_continues_bit_for_bit() -> weft::Result<()> {
    let folder = Folder::new("checkpoint");
    let plan = support::small().build(&mut support::model()?)?;
    let mut first = Run::start(&plan)?;
    first.step(&support::batch()?, Mode::Train)?;
    let options = SaveOptions { model: None, pairs: vec![("author".into(), "test".into())] };
    first.save(&folder.0, &options)?;
    first.step(&support::batch()?, Mode::Train)?;

    let mut checkpoint = Checkpoint::open(&folder.0)?;
    let info = checkpoint.describe()?;
    assert_eq!((info.step, info.params, info.pairs), (1, 4, options.pairs));
    assert!(checkpoint.tensors().contains(&tensor("hidden.weight", [1, 8], "F32")));
    let mut second = Run::start(&plan)?;
    second.load(&mut checkpoint)?;
    assert_eq!(second.digest()?, checkpoint.digest()?);
    second.step(&support::batch()?, Mode::Train)?;
    assert_eq!(second.digest()?, first.digest()?);
    assert_eq!(second.optimizer_digest()?, first.optimizer_digest()?);
    Ok(())
}

#[test]
fn a_checkpoint_is_exported_with_the_files_of_its_source() -> weft::Result<()> {
    let folder = Folder::new("source");
    let (out, model, file) = (folder.0.join("out"), folder.0.join("model"), folder.0.join("weights.safetensors"));
    let plan = support::small().build(&mut support::model()?)?;
    Run::start(&plan)?.save(&out, &SaveOptions::default())?;
    std::fs::create_dir_all(&model).expect("a directory");
    std::fs::write(model.join("config.json"), r#"{"eos_token_id": 7}"#).expect("a file");
    weft::keep_source(&out, Some(&model), None)?;
    let mut checkpoint = Checkpoint::open(&out)?;
    let info = checkpoint.describe()?;
    assert!(info.source.expect("a directory").ends_with("source"));
    assert_eq!(info.ends, [7]);
    let config = ExportConfig::default();
    assert_eq!(config, ExportConfig { dtype: "f32".into(), shard_bytes: 5_000_000_000, merge: false, adapters: None });
    let adapted = ExportConfig { adapters: Some(model), ..config.clone() };
    let error = checkpoint.export_as(&file, &adapted).expect_err("a directory without adapters");
    assert!(error.to_string().contains("adapter_config.json"), "{error}");
    checkpoint.export_as(&file, &ExportConfig { dtype: "bf16".into(), ..config })?;
    let exported = Checkpoint::open(&file)?;
    assert!(exported.describe()?.weights_only);
    assert!(exported.tensors().contains(&tensor("hidden.weight", [1, 8], "BF16")), "{:?}", exported.tensors());
    Ok(())
}

#[test]
fn a_queued_save_ends_with_an_event() -> weft::Result<()> {
    let folder = Folder::new("queue");
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::builder(&plan).threads(1).start()?;
    run.submit(&support::batch()?, Mode::Train, 1)?;
    run.queue_save(&folder.0, &SaveOptions::default(), 2)?;
    let saved = run.events().find_map(|event| match event {
        Ok(Event::Saved { tag, step, checkpoint, failure }) => Some((tag, step, checkpoint, failure)),
        _ => None,
    });
    let (tag, step, checkpoint, failure) = saved.expect("an event");
    assert_eq!((tag, step, failure), (2, 1, None));
    assert_eq!(checkpoint?, folder.0.join("step-00000001"));
    Ok(())
}

#[test]
fn a_queued_save_of_a_run_that_fails_has_the_facts() -> weft::Result<()> {
    let folder = Folder::new("failed");
    let shape = |inputs: &[Desc], _: &[Desc]| Ok(OpShape { output: inputs[0].clone(), stash: None });
    let mut model = Model::new()?;
    model.add_op(Op::new("broken", shape, |_| Err("it is broken".into())))?;
    let x = model.input("x", &Desc::f32([1, 1]))?;
    let out = model.unary("broken", x)?;
    model.output(out)?;
    let mut run = Run::start(&support::small().build(&mut model)?)?;
    run.submit(&support::batch()?[..1], Mode::Forward, 1)?;
    run.queue_save(&folder.0, &SaveOptions::default(), 2)?;
    match run.events().collect::<weft::Result<Vec<_>>>()?.pop() {
        Some(Event::Saved { tag: 2, checkpoint: Err(error), failure: Some(failure), .. }) => {
            assert_eq!(failure.to_string(), error.text());
            assert!(failure.detail.contains("it is broken"), "{failure:?}");
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

#[test]
fn a_path_that_is_not_utf_8_comes_back_unchanged() -> weft::Result<()> {
    let folder = Folder::new("bytes");
    let (out, model) = (folder.0.join(OsStr::from_bytes(b"out\xff")), folder.0.join("model"));
    std::fs::create_dir_all(&model).expect("a directory");
    std::fs::write(model.join("config.json"), r#"{"eos_token_id": 7}"#).expect("a file");
    weft::keep_source(&out, Some(&model), None)?;
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::start(&plan)?;
    run.queue_save(&out, &SaveOptions::default(), 0)?;
    match run.poll(None)? {
        Some(Event::Saved { checkpoint, .. }) => assert_eq!(checkpoint?, out.join("step-00000000")),
        other => panic!("{other:?}"),
    }
    let info = Checkpoint::open(&out)?.describe()?;
    assert_eq!((info.path, info.source), (out.join("step-00000000"), Some(out.join("source"))));
    Ok(())
}

#[test]
fn poll_without_a_step_returns_none() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::start(&plan)?;
    assert!(run.poll(None)?.is_none());
    assert!(run.poll(Some(Duration::ZERO))?.is_none());
    assert!(run.fd().is_some());
    assert!(run.failure().is_none());
    Ok(())
}

#[test]
fn a_run_moves_between_threads() -> weft::Result<()> {
    let plan = support::small().build(&mut support::model()?)?;
    let mut run = Run::start(&plan)?;
    let loss = std::thread::spawn(move || run.step(&support::batch()?, Mode::Train)).join().unwrap()?;
    assert!(loss > 0.0);
    Ok(())
}
