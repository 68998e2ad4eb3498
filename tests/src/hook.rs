//! A receiver of the webhook on this machine: keeps what is posted, and answers as it is told.
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// A receiver; its thread ends with the test's process.
pub struct Hook {
    url: String,
    answer: Arc<AtomicU16>,
    heard: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    /// One that takes everything, on a port of its own.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("it is bound");
        let (answer, heard) = (Arc::new(AtomicU16::new(204)), Arc::default());
        let (answers, kept) = (Arc::clone(&answer), Arc::clone(&heard));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever posts may be killed in the middle of it.
                let _ = answered(stream, &answers, &kept);
            }
        });
        Self {
            url: format!("http://{at}/hook"),
            answer,
            heard,
        }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers with this code from now on.
    pub fn answer(&self, code: u16) {
        self.answer.store(code, Ordering::SeqCst);
    }

    /// What it has taken or refused so far, in order, doubles included.
    pub fn heard(&self) -> Vec<Value> {
        self.heard.lock().expect("nobody panics with it").clone()
    }

    /// The documents about incidents, each once: event and incident.
    pub fn incidents(&self) -> Vec<(String, Value)> {
        let mut all: Vec<Value> = Vec::new();
        for document in self.heard() {
            if !all.iter().any(|known| known["id"] == document["id"]) {
                all.push(document);
            }
        }
        let of = |document: Value| {
            let event = document["event"].as_str().expect("an event").to_owned();
            (event, document["incident"].clone())
        };
        let all = all.into_iter().map(of);
        all.filter(|(_, incident)| incident.is_object()).collect()
    }
}

fn answered(
    stream: TcpStream,
    answer: &AtomicU16,
    heard: &Mutex<Vec<Value>>,
) -> std::io::Result<()> {
    let mut from = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let document = serde_json::from_slice(&body).expect("JSON is posted");
    let code = answer.load(Ordering::SeqCst);
    heard.lock().expect("nobody panics with it").push(document);
    let head = format!("HTTP/1.1 {code} said\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    from.get_mut().write_all(head.as_bytes())
}
