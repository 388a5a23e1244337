//! Trains the network of embed.rs in two processes. Each has one thread and a loop of tokio, which never waits for weft.
use tokio::process::{Child, Command};
use weft::{Desc, Event, EventStream, Mesh, Mode, Model, Optimizer, Plan, RateCurve, Result, Run, Tensor};

const STEPS: u64 = 500;

fn make_plan() -> Result<Plan> {
    let mut model = Model::new()?;
    let x = model.input("x", &Desc::f32([1, 1]))?;
    let y = model.input("y", &Desc::f32([1, 1]))?;
    let hidden = model.linear("hidden", x, 32)?;
    let hidden = model.unary("gelu", hidden)?;
    let out = model.linear("out", hidden, 1)?;
    model.binary("mse", out, y)?;
    let adamw = Optimizer { rate: 0.02, curve: RateCurve::Cosine, total: STEPS, clip: 0.0, ..Optimizer::default() };
    Plan::builder().ranks(2).micro_batches(4).micro_batch_size(16).optimizer(adamw).build(&mut model)
}

/// Rank 0.
async fn train(mut run: EventStream) -> Result<()> {
    let x: Vec<f32> = (0..64).map(|i| i as f32 / 10.0 - 3.2).collect();
    let y: Vec<f32> = x.iter().map(|x| x.sin()).collect();
    let batch = [Tensor::from_vec([64, 1], x)?, Tensor::from_vec([64, 1], y)?];
    while let Some(event) = run.next().await {
        match event? {
            Event::Joined { rank, missing, .. } => println!("rank {rank} has joined, {missing} are missing"),
            Event::Refused { text, .. } => eprintln!("refused {text}"),
            Event::Started { ranks, .. } => {
                println!("started with {ranks} ranks");
                run.submit(&batch, Mode::Train, 0)?;
            }
            Event::Done { tag, loss, .. } => {
                if tag % 100 == 0 {
                    println!("step {tag:3}  loss {loss:.6}");
                }
                if tag < STEPS {
                    run.submit(&batch, Mode::Train, tag + 1)?;
                }
            }
            Event::Failed { error, .. } | Event::RunFailed { error, .. } => return Err(error),
            _ => {}
        }
    }
    Ok(()) // the run ends here
}

/// Waits for the process of rank 1. If it ends too early, the run gets an error.
async fn watch(mut process: Child, mesh: &Mesh) -> bool {
    let status = process.wait().await.expect("the process can be waited for");
    println!("rank 1 has ended with status {}", status.code().unwrap_or(-1));
    mesh.canceller().cancel();
    status.success()
}

async fn control() -> Result<()> {
    let mesh = Mesh::builder().listen()?;
    let run = EventStream::new(Run::builder(&make_plan()?).mesh(&mesh).begin()?)?;
    let program = std::env::current_exe().expect("the path of this program is known");
    let process = Command::new(program).arg(mesh.join_endpoint()).spawn().expect("this program can be started");
    let trained = tokio::spawn(train(run));
    let good = watch(process, &mesh).await;
    trained.await.expect("training does not panic")?;
    assert!(good, "rank 1 failed");
    Ok(())
}

/// Any other rank.
async fn serve(endpoint: &str) -> Result<()> {
    let mut mesh = Mesh::builder().endpoint(endpoint).join()?;
    let mut run = EventStream::new(mesh.service().begin()?)?;
    while let Some(event) = run.next().await {
        if let Event::RunFailed { error, .. } = event? {
            return Err(error);
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a loop can be made");
    match std::env::args().nth(1) {
        Some(endpoint) => runtime.block_on(serve(&endpoint)),
        None => runtime.block_on(control()),
    }
}
