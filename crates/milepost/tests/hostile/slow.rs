//! Peers that send a byte now and then, on every route, for as long as they are let.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::description::{Description, Known};
use super::victim::Victim;

#[test]
fn slow_senders_on_every_route() {
    let variables = [
        ("MILEPOST_HEAD_SECONDS", "2"),
        ("MILEPOST_BODY_SECONDS", "2"),
        ("MILEPOST_IDLE_SECONDS", "2"),
        ("MILEPOST_WRITE_SECONDS", "2"),
    ];
    let victim = Victim::with(&[], &variables);
    let description = Description::new(victim.get("/api/v1/openapi.json").json());
    let mut slow = Vec::new();
    for operation in description.operations(&Known::new()) {
        let bytes = operation.request().bytes();
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        // Slow from the first byte on, slow in the head, slow in the body.
        for sent in [1, head / 2, head.min(bytes.len() - 1)] {
            let mut stream = TcpStream::connect(("127.0.0.1", victim.port())).unwrap();
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write_all(&bytes[..sent]);
            slow.push((operation.name(), stream, bytes[sent..].to_vec()));
        }
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        for (_, stream, rest) in &mut slow {
            if !rest.is_empty() && stream.write_all(&rest[..1]).is_ok() {
                rest.remove(0);
            }
        }
        victim.is_well("while peers are slow");
        std::thread::sleep(Duration::from_millis(200));
    }
    // Those that had not said it all have been let go.
    let open = super::servers::eventually("slow peers to be let go", || {
        let open = slow.iter().filter(|(_, stream, rest)| rest.len() > 20 && !is_closed(stream)).count();
        (open == 0).then_some(open)
    });
    assert_eq!(open, 0);
    drop(slow);
    victim.ends_well();
}

fn is_closed(stream: &TcpStream) -> bool {
    let mut piece = [0; 4096];
    loop {
        match stream.peek(&mut piece) {
            Ok(0) => return true,
            Ok(_) => {
                let mut reader = stream;
                let _ = std::io::Read::read(&mut reader, &mut piece);
            }
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}
