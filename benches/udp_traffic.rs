//! Frames through a bridge between two UDP tunnels: how many a second, or how long one takes. For `scripts/bench`.
//!
//! `udp_traffic rate|runs|latency <seconds> <own port>:<bridge's port> <own port>:<bridge's port>` prints a line of JSON.
//! Frames go from the first socket to the second, 64 bytes each. With `runs` both send and receive in runs, as rubridge
//! does. At most a window of frames is on its way, so no socket on it overflows. What is lost all the same is told.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rubridge::sys::socket::enlarge_buffers;
use rubridge::sys::udp::{receive, receive_together, send_together};

const FRAME: usize = 64;
/// Frames on their way at most.
const WINDOW: u64 = 512;
/// Room for the window, which the default of 208 KiB is not: it has some 250 frames.
const BUFFER_BYTES: u32 = 4 << 20;
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
    enlarge_buffers(&socket, BUFFER_BYTES)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn rate(from: &UdpSocket, to: &UdpSocket, seconds: Duration, runs: bool) -> anyhow::Result<String> {
    if runs {
        receive_together(to)?;
    }
    let (arrived, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sent, per_second) = std::thread::scope(|scope| {
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
        let start = Instant::now();
        let sent = send(from, &arrived, seconds, runs);
        #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
        let per_second = arrived.load(Relaxed) as f64 / start.elapsed().as_secs_f64();
        over.store(true, Relaxed);
        sent.map(|sent| (sent, per_second))
    })?;
    // By now the last frames have arrived too.
    Ok(json(sent, arrived.into_inner(), &format!("\"frames_per_second\": {per_second:.0}")))
}

/// Returns how many frames were sent.
fn send(from: &UdpSocket, arrived: &AtomicU64, seconds: Duration, runs: bool) -> io::Result<u64> {
    let frames = [7; FRAME * RUN];
    let start = Instant::now();
    let (mut sent, mut given_up) = (0, 0);
    let mut progress = (0, start);
    while start.elapsed() < seconds {
        let done = arrived.load(Relaxed) + given_up;
        if sent + RUN as u64 > done + WINDOW {
            if progress.0 != done {
                progress = (done, Instant::now());
            } else if progress.1.elapsed() > PATIENCE {
                given_up += sent - done;
            }
            std::thread::yield_now();
            continue;
        }
        if runs {
            or_lost(send_together(from.as_fd(), &frames, 64))?;
            sent += RUN as u64;
        } else {
            or_lost(from.send(&frames[..FRAME]).map(drop))?;
            sent += 1;
        }
    }
    Ok(sent)
}

/// Frames one by one, with a pause between them.
fn latency(from: &UdpSocket, to: &UdpSocket, seconds: Duration) -> anyhow::Result<String> {
    let mut buffer = [0; 2 * FRAME];
    let mut frame = [7; FRAME];
    let (mut sent, mut times) = (0u64, Vec::new());
    let start = Instant::now();
    while start.elapsed() < seconds {
        std::thread::sleep(Duration::from_micros(200));
        sent += 1;
        // A number, as one that was given up may still arrive.
        frame[..8].copy_from_slice(&sent.to_be_bytes());
        let departure = Instant::now();
        or_lost(from.send(&frame).map(drop))?;
        while or_lost(to.recv(&mut buffer).map(drop))? {
            if buffer[..FRAME] == frame {
                times.push(departure.elapsed());
                break;
            }
        }
    }
    times.sort();
    let at = |percent: usize| {
        let time = times.get(times.len().saturating_sub(1) * percent / 100);
        time.map_or_else(|| "null".to_owned(), |time| format!("{:.1}", time.as_secs_f64() * 1e6))
    };
    let figures = format!("\"median_us\": {}, \"p99_us\": {}", at(50), at(99));
    Ok(json(sent, times.len() as u64, &figures))
}

/// Whether it went well. That nobody is there, or that nothing comes, is no error: the frame is lost.
fn or_lost(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::WouldBlock) => Ok(false),
        done => done.map(|()| true),
    }
}

fn json(sent: u64, received: u64, figures: &str) -> String {
    let lost = sent.saturating_sub(received);
    format!("{{\"sent\": {sent}, \"received\": {received}, \"lost\": {lost}, {figures}}}")
}
