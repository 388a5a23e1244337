//! Models and plans: settings reach the library, and errors come back.
mod support;

use weft::{
    schedules, AdapterConfig, Data, Desc, ItemKind, MemoryKind, Mesh, Mode, Model, Optimizer, ParameterGroup, Part, Plan, Preset,
    Profile, RateCurve, Run, Split, Status, Tensor,
};

fn send<T: Send>() {}
fn sync<T: Sync>() {}

#[test]
fn types_are_shared_where_every_function_may_be_called_on_any_thread() {
    send::<Model>();
    send::<weft::Run>();
    send::<weft::Generator>();
    send::<weft::Generator<&mut weft::Run>>();
    send::<Plan>();
    sync::<Plan>();
    sync::<weft::Tensor>();
    sync::<Profile>();
    sync::<weft::Mesh>();
    sync::<weft::Checkpoint>();
    sync::<weft::Data>();
    sync::<weft::Prediction>();
}

#[test]
fn a_model_lists_its_items() -> weft::Result<()> {
    let model = support::model()?;
    let names = |kind| model.items(kind).into_iter().map(|item| item.name).collect::<Vec<_>>();
    assert_eq!(names(ItemKind::Input), ["x", "y"]);
    assert_eq!(names(ItemKind::Param), ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]);
    assert_eq!(model.items(ItemKind::Output)[0].desc, Desc::f32([1, 1]));
    assert_eq!(model.items(ItemKind::Node)[1].op.as_deref(), Some("gelu"));
    Ok(())
}

#[test]
fn speeds_are_one_per_rank() -> weft::Result<()> {
    let mut model = support::model()?;
    for ranks in [2, 200_000_000] {
        let refused = support::small().ranks(ranks).speeds([1.0]).build(&mut model).err().unwrap();
        assert_eq!(refused.status(), Status::Invalid);
    }
    let many = ["data", "stage", "tensor"].iter().fold(support::small(), |plan, axis| plan.axis(axis, u32::MAX));
    assert_eq!(many.speeds([1.0]).build(&mut model).err().unwrap().status(), Status::Invalid);
    Ok(())
}

#[test]
fn a_number_that_the_library_does_not_have_is_named() -> weft::Result<()> {
    let (most, heads) = (usize::MAX, u32::MAX);
    let mut model = Model::new()?;
    let x = model.input("x", &Desc::f32([1, 4, 12]))?;
    let ids = model.input("ids", &Desc::i32([1, 4]))?;
    let preset = Preset::new("mlp", 0, 1)?;
    let data = Data::builder().preset(&preset).open()?;
    let row = Desc::f32([1, preset.width]);
    let (mut inputs, mut targets) = (Tensor::zeros(&row)?, Tensor::zeros(&row)?);
    let wide = Preset { width: most, ..Preset::new("mlp", 0, 1)? };
    let refused = |result: weft::Result<()>| result.unwrap_err();
    for (value, error) in [
        (most, refused(model.linear("out", x, most).map(drop))),
        (most, refused(model.embedding("rows", ids, most, 4).map(drop))),
        (most, refused(model.embedding("width", ids, 4, most).map(drop))),
        (most, refused(model.shape(x, most).map(drop))),
        (most, refused(model.param("weight", [most], weft::Init::Zeros).map(drop))),
        (most, refused(Tensor::zeros(&Desc::f32([most])).map(drop))),
        (most, refused(Preset::new("gpt-nano", most, 1).map(drop))),
        (most, refused(Preset::packed("gpt-nano", most, 1).map(drop))),
        (most, refused(Preset::decoder("gpt-nano", most, 0, false).map(drop))),
        (most, refused(Preset::decoder("gpt-nano", 1, most, false).map(drop))),
        (most, refused(Data::builder().preset(&wide).open().map(drop))),
        (most, refused(data.eval(most, &mut inputs, &mut targets))),
        (heads as usize, refused(model.attention(x, heads, true).map(drop))),
        (heads as usize, refused(model.node("attention").inputs([x]).heads(heads).add().map(drop))),
        (heads as usize, refused(Mesh::builder().endpoint("ipc:///nonexistent").rank(u32::MAX).join().map(drop))),
    ] {
        assert_eq!(error.status(), Status::Invalid, "{error}");
        assert!(error.text().contains(&format!("{value}, which does not fit")), "{error}");
    }
    Ok(())
}

#[test]
fn every_setting_reaches_the_plan() -> weft::Result<()> {
    let mut model = support::model()?;
    let optimizer = Optimizer { rate: 0.5, curve: RateCurve::Linear, total: 10, ..Optimizer::default() };
    let cut = model.items(ItemKind::Node)[2].name.clone();
    let plan = support::small().ranks(2).schedule("gpipe").cuts([&cut]).optimizer(optimizer).build(&mut model)?;
    let info = plan.describe()?;
    assert_eq!((info.ranks, info.stages, info.micro_batches, info.schedule.as_str()), (2, 2, 2, "gpipe"));
    assert_eq!(plan.first(1), Some(cut));
    assert_eq!(plan.first(2), None);
    assert_eq!(plan.rate(0), 0.5);
    assert_eq!(plan.rate(5), 0.25);
    let kinds = [
        MemoryKind::Weights,
        MemoryKind::Gradients,
        MemoryKind::Optimizer,
        MemoryKind::Activations,
        MemoryKind::Messages,
        MemoryKind::Scratch,
        MemoryKind::State,
    ];
    assert_eq!(kinds.iter().map(|kind| plan.memory(1, *kind)).sum::<u64>(), plan.bytes(1));

    let same = plan.settings()?.build(&mut model)?;
    assert_eq!(same.timetable(), plan.timetable());
    let written = support::small().ranks(2).schedule_text(&plan.timetable()).build(&mut model)?;
    assert_eq!(written.describe()?.schedule, "written");
    let split = support::small().ranks(2).split(Split::Type("linear".into())).build(&mut model)?;
    assert_eq!(split.stages(), 2);
    Ok(())
}

#[test]
fn a_setting_replaces_that_of_a_plan() -> weft::Result<()> {
    let mut model = support::model()?;
    let last = model.items(ItemKind::Node).last().expect("a node").name.clone();
    let first = support::small().ranks(2).split(Split::Uniform).build(&mut model)?.first(1);
    let groups = [ParameterGroup::frozen("hidden.*")];
    let plan = support::small().ranks(2).cuts([&last]).groups(groups).build(&mut model)?;
    assert_eq!(plan.first(1), Some(last));
    assert_eq!(plan.settings()?.split(Split::Uniform).build(&mut model)?.first(1), first);
    assert_eq!(plan.settings()?.split(Split::Uniform).cuts(Vec::<String>::new()).build(&mut model)?.first(1), first);
    let plan = plan.settings()?.cuts(Vec::<String>::new()).groups([]).build(&mut model)?;
    assert_eq!(plan.first(1), support::small().ranks(2).build(&mut model)?.first(1));
    assert_eq!(plan.describe()?.trained, model.parameters() as u64);

    let written = plan.settings()?.schedule_text(&plan.timetable()).build(&mut model)?;
    assert_eq!(written.describe()?.schedule, "written");
    assert_eq!(written.settings()?.schedule("gpipe").build(&mut model)?.describe()?.schedule, "gpipe");

    assert_eq!(plan.settings()?.split(Split::Cost).ranks(1).build(&mut model)?.describe()?.ranks, 1);
    assert_eq!(plan.settings()?.split(Split::Cost).axis("stage", 1).build(&mut model)?.describe()?.ranks, 1);
    Ok(())
}

#[test]
fn the_last_call_of_a_setting_counts() -> weft::Result<()> {
    let mut model = support::model()?;
    let expected = support::small().ranks(2).split(Split::Cost).build(&mut model)?;
    let builder = support::small().ranks(2).split(Split::Type("linear".into())).split(Split::Cost);
    assert_eq!(builder.build(&mut model)?.first(1), expected.first(1));
    let groups = || [ParameterGroup::frozen("hidden.*")];
    let builder = support::small().speeds([1.0, 2.0, 3.0]).speeds([]).groups(groups()).groups([]);
    assert_eq!(builder.build(&mut model)?.describe()?.trained, model.parameters() as u64);
    Ok(())
}

#[test]
fn frozen_parameters_do_not_change() -> weft::Result<()> {
    let mut model = support::model()?;
    let groups = [ParameterGroup::frozen("hidden.*"), ParameterGroup { rate_factor: 0.0, ..ParameterGroup::new("out.bias") }];
    let plan = support::small().groups(groups).build(&mut model)?;
    assert_eq!(plan.describe()?.trained, 9);
    let mut run = Run::start(&plan)?;
    let names = ["hidden.weight", "hidden.bias", "out.bias", "out.weight"];
    let read = |run: &mut Run, name| Ok::<_, weft::Error>(run.read(name, Part::Value)?.as_slice::<f32>()?.to_vec());
    let before = names.map(|name| read(&mut run, name).unwrap());
    run.step(&support::batch()?, Mode::Train)?;
    let after = names.map(|name| read(&mut run, name).unwrap());
    assert_eq!(before[..3], after[..3]);
    assert_ne!(before[3], after[3]);
    Ok(())
}

#[test]
fn errors_have_a_status_and_a_text() -> weft::Result<()> {
    let mut model = support::model()?;
    let error = support::small().ranks(0).build(&mut model).err().unwrap();
    assert_eq!(error.status(), Status::Invalid);
    assert!(error.to_string().contains("ranks"), "{error}");
    let error = support::small().schedule("a\0b").build(&mut model).err().unwrap();
    assert_eq!(error.text(), "the text \"a\\0b\" contains a NUL");
    let error = Plan::load(&mut model, "/nonexistent/plan.json").err().unwrap();
    assert!(error.text().contains("/nonexistent/plan.json"), "{error}");
    Ok(())
}

#[test]
fn a_step_is_predicted_and_schedules_are_compared() -> weft::Result<()> {
    let mut model = support::model()?;
    let profile = Profile::measure(&mut model, 2, 2, 1)?;
    assert_eq!(profile.nodes().len(), model.items(ItemKind::Node).len());
    let bf16 = Profile::measure_as(&mut model, 2, 2, 1, "bf16", "")?;
    let error = support::small().profile(&bf16).build(&mut model).err().unwrap();
    assert!(error.text().contains("made with precision bf16, the plan has precision f32"), "{error}");
    let plan = support::small().ranks(2).profile(&profile).build(&mut model)?;
    let prediction = plan.simulate()?;
    assert!(prediction.step()?.step >= prediction.step()?.commit);
    assert_eq!(prediction.ranks().len(), 2);
    assert_eq!(prediction.links().len(), 2);
    let comparison = support::small().ranks(2).schedule("auto").compare(&mut model)?;
    let candidates = comparison.candidates();
    assert_eq!(candidates.len(), schedules().iter().filter(|schedule| !schedule.asynchronous && !schedule.forward_only).count());
    assert_eq!(candidates.iter().filter(|candidate| candidate.best).count(), 1);
    Ok(())
}

#[test]
fn presets_describe_their_data() -> weft::Result<()> {
    let preset = Preset::new("gpt-nano", 16, 1)?;
    assert!(preset.tokens);
    assert_eq!((preset.vocabulary, preset.seq_len), (256, 16));
    let mlp = Preset::new("mlp", 0, 3)?;
    assert!(!mlp.tokens && mlp.width > 0);
    assert_eq!(Preset::new("gpt-nan", 0, 1).err().unwrap().status(), Status::NotFound);
    Ok(())
}

#[test]
fn linear_nodes_get_adapters() -> weft::Result<()> {
    let base = Preset::new("gpt-nano:blocks=2,width=32,heads=2", 16, 1)?.model;
    let adapters = |targets: &[&str]| AdapterConfig {
        rank: 2,
        alpha: 4.0,
        targets: targets.iter().map(|name| name.to_string()).collect(),
        ..Default::default()
    };
    let model = base.adapt(&adapters(&["c_fc", "1.attn.c_attn"]))?;
    assert_eq!(model.parameters() - base.parameters(), 2 * (2 * (32 + 128)) + 2 * (32 + 96));
    assert_eq!(base.adapt(&adapters(&["q_proj"])).err().unwrap().status(), Status::NotFound);
    Ok(())
}

#[test]
fn a_packed_sample_has_positions() -> weft::Result<()> {
    let packed = Preset::packed("gpt-nano:blocks=1,width=32,heads=2", 16, 1)?;
    assert_eq!(packed.seq_len, 16);
    assert_eq!(packed.model.items(ItemKind::Input).last().map(|input| input.name.as_str()), Some("positions"));
    assert_eq!(Preset::packed("mlp", 0, 1).err().unwrap().status(), Status::Invalid);
    Ok(())
}

#[test]
fn a_decoder_continues_sequences() -> weft::Result<()> {
    let mut decoder = Preset::decoder("gpt-nano:blocks=2,width=32,heads=2,context=20", 2, 0, false)?;
    assert_eq!(decoder.seq_len, 20);
    let builder = Plan::builder().micro_batches(1).micro_batch_size(8).step_kinds([weft::StepKind::Forward]);
    let plan = builder.build(&mut decoder.model)?;
    assert!(plan.memory(0, MemoryKind::State) > 0);
    let mut run = Run::start(&plan)?;
    let mut generator = weft::Generator::new(&mut run)?;
    assert_eq!(generator.poll(None)?, None);
    let config = weft::SequenceConfig { limit: 3, stops: vec![300], ..Default::default() };
    let first = generator.add(&[1, 2, 3], &config)?;
    let second = generator.add(&[7], &config)?;
    assert_eq!(generator.add(&[7], &config).unwrap_err().status(), Status::Again);
    generator.remove(second)?;
    for index in 0..3 {
        let token = generator.poll(None)?.expect("the sequence has not ended");
        assert_eq!((token.sequence, token.index), (first, index));
        assert_eq!(token.end == weft::SequenceEnd::Limit, index == 2);
    }
    Ok(())
}

// Only the second sequence has the position that is not finite.
#[test]
fn a_sequence_whose_logits_are_not_finite_ends_alone() -> weft::Result<()> {
    let mut decoder = Preset::decoder("gpt-nano:blocks=1,width=8,heads=2,context=8", 2, 0, false)?;
    let plan = Plan::builder().micro_batches(1).step_kinds([weft::StepKind::Forward]).build(&mut decoder.model)?;
    let mut run = Run::start(&plan)?;
    let mut positions = run.read("wpe.weight", Part::Value)?;
    positions.as_mut_slice::<f32>()?[5 * 8..6 * 8].fill(f32::NAN);
    run.write("wpe.weight", Part::Value, &positions)?;
    let mut generator = weft::Generator::new(&mut run)?;
    let config = weft::SequenceConfig { limit: 3, ..Default::default() };
    let first = generator.add(&[1, 2], &config)?;
    let second = generator.add(&[1, 2, 3, 4, 5, 6], &config)?;
    let (mut tokens, mut failed) = (Vec::new(), Vec::new());
    loop {
        match generator.poll(None) {
            Ok(Some(token)) => tokens.push(token.sequence),
            Ok(None) => break,
            Err(error) => failed.push((error.status(), error.sequence())),
        }
    }
    assert_eq!((tokens, failed), (vec![first; 3], vec![(Status::Data, Some(second))]));
    assert_eq!(generator.add(&[], &config).unwrap_err().sequence(), None);
    Ok(())
}

#[test]
fn a_generator_can_own_its_run() -> weft::Result<()> {
    let mut decoder = Preset::decoder("gpt-nano:blocks=1,width=8,heads=2,context=8", 1, 0, false)?;
    let plan = Plan::builder().micro_batches(1).step_kinds([weft::StepKind::Forward]).build(&mut decoder.model)?;
    let config = weft::SequenceConfig { limit: 2, temperature: 0.0, ..Default::default() };
    let tokens = |generator: &mut weft::Generator| -> weft::Result<Vec<i32>> {
        generator.add(&[1, 2], &config)?;
        std::iter::from_fn(|| generator.poll(None).transpose()).map(|token| Ok(token?.token)).collect()
    };
    let mut generator = weft::Generator::new(Run::start(&plan)?)?;
    let here = tokens(&mut generator)?;
    assert!(generator.run().fd().is_some());
    assert!(generator.run().failure().is_none());
    let there = std::thread::scope(|scope| scope.spawn(|| tokens(&mut generator)).join().unwrap())?;
    assert_eq!((here.len(), here), (2, there));
    let mut run = generator.into_run();
    let row = Tensor::from_vec([1, 1], vec![0])?;
    let step = |run: &mut Run| run.step(&[&row, &row, &row], Mode::Forward).map_err(|error| error.status());
    assert_eq!(step(&mut run), Err(Status::Invalid), "a step is possible again, and has the wrong size");
    std::mem::forget(weft::Generator::new(&mut run)?);
    assert_eq!(step(&mut run), Err(Status::State));
    Ok(())
}
