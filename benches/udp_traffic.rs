//! Frames through a bridge between two UDP tunnels: how many a second, or how long one takes. For `scripts/bench`.
//!
//! `udp_traffic rate|runs|latency <seconds> <own port>:<bridge's port> <own port>:<bridge's port>` prints a line of JSON.
//! Frames go from the first socket to the second, 64 bytes each. With `runs` both send and receive in runs, as rubridge
//! does. At most a window of frames is on its way, so a bridge that loses none has all that were sent.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rubridge::sys::udp::{receive, receive_together, send_together};

const FRAME: usize = 64;
/// Frames on their way at most.
const WINDOW: u64 = 512;
const RUN: usize = 32;
/// What has not arrived by then is lost.
const PATIENCE: Duration = Duration::from_millis(200);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, seconds, from, to] = &arguments[..] else {
        bail!("usage: udp_traffic rate|runs|latency <seconds> <own port>:<bridge's port> <own port>:<bridge's port>");
    };
    let seconds = Duration::from_secs(seconds.parse().context("the seconds are a whole number")?);
    let (from, to) = (open(from)?, open(to)?);
    let said = match mode.as_str() {
        "rate" => rate(&from, &to, seconds, false)?,
        "runs" => rate(&from, &to, seconds, true)?,
        "latency" => latency(&from, &to, seconds)?,
        _ => bail!("no mode {mode}"),
    };
    println!("{said}");
    Ok(())
}

fn open(ports: &str) -> anyhow::Result<UdpSocket> {
    let parsed = ports.split_once(':').and_then(|(own, bridge)| Some((own.parse().ok()?, bridge.parse().ok()?)));
    let (own, bridge): (u16, u16) = parsed.with_context(|| format!("{ports} is not <own port>:<bridge's port>"))?;
    let socket = UdpSocket::bind(("127.0.0.1", own))?;
    socket.connect(("127.0.0.1", bridge))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn rate(from: &UdpSocket, to: &UdpSocket, seconds: Duration, runs: bool) -> anyhow::Result<String> {
    if runs {
        receive_together(to)?;
    }
    let (arrived, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 70_000];
            loop {
                match receive(to.as_fd(), &mut buffer) {
                    Ok(got) => drop(arrived.fetch_add((got.len / FRAME) as u64, Relaxed)),
                    Err(_) if over.load(Relaxed) => break,
                    Err(_) => {}
                }
            }
        });
        let sent = send(from, &arrived, seconds, runs);
        over.store(true, Relaxed);
        sent
    })
    .map(|(sent, lost, elapsed)| {
        #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
        let per_second = (sent - lost) as f64 / elapsed.as_secs_f64();
        format!("{{\"frames_per_second\": {per_second:.0}, \"lost\": {lost}}}")
    })
}

/// Returns how many frames were sent and lost, and the time.
fn send(from: &UdpSocket, arrived: &AtomicU64, seconds: Duration, runs: bool) -> anyhow::Result<(u64, u64, Duration)> {
    let frames = [7; FRAME * RUN];
    let start = Instant::now();
    let (mut sent, mut lost) = (0, 0);
    let mut progress = (0, start);
    while start.elapsed() < seconds {
        let done = arrived.load(Relaxed) + lost;
        if sent + RUN as u64 > done + WINDOW {
            if progress.0 != done {
                progress = (done, Instant::now());
            } else if progress.1.elapsed() > PATIENCE {
                lost += sent - done;
            }
            std::thread::yield_now();
            continue;
        }
        if runs {
            send_together(from.as_fd(), &frames, 64)?;
            sent += RUN as u64;
        } else {
            from.send(&frames[..FRAME])?;
            sent += 1;
        }
    }
    Ok((sent, lost, start.elapsed()))
}

/// Frames one by one, with a pause between them.
fn latency(from: &UdpSocket, to: &UdpSocket, seconds: Duration) -> anyhow::Result<String> {
    let mut buffer = [0; 2 * FRAME];
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < seconds {
        std::thread::sleep(Duration::from_micros(200));
        let sent = Instant::now();
        from.send(&[7; FRAME])?;
        to.recv(&mut buffer).context("a frame was lost")?;
        times.push(sent.elapsed());
    }
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    Ok(format!("{{\"median_us\": {:.1}, \"p99_us\": {:.1}}}", at(50), at(99)))
}
