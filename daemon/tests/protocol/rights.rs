//! Every method that a leader has on the network for nodes and their roles asks who calls.
use super::leader::{Leader, TOKEN, enroll};
use bytes::Bytes;
use robust_identity::{Caller, NodeKey};
use robustd::nodes::{JoinToken, unix_ms};
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::TcpStream;
use tonic::Code;
use tonic::codegen::http::Request;

/// What others than joined nodes are answered otherwise than that they are nobody. All other methods are for sessions
/// alone: one that is added has to be so, or to be written down here.
const OPEN: [(&str, Code); 2] = [
    // Whoever holds a join token; what is asked here has no name.
    ("NodeHost/Enroll", Code::InvalidArgument),
    // Whoever proved anything: clocks are compared before a node joins.
    ("NodeHost/Clock", Code::Ok),
];

/// The methods of a service, as `NodeHost/Join`.
fn methods(service: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/robust/v1");
    let files = std::fs::read_dir(folder).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let all: String = texts.collect();
    let (_, after) = all.split_once(&format!("service {service} {{")).unwrap();
    let (body, _) = after.split_once("\n}").unwrap();
    let lines = body
        .lines()
        .filter_map(|line| line.trim().strip_prefix("rpc "));
    lines
        .map(|line| format!("{service}/{}", line.split('(').next().unwrap()))
        .collect()
}

/// What somebody hears who asks for a method with a message in which nothing is set, and shows no session.
async fn heard(addr: SocketAddr, caller: &Caller, method: &str) -> Code {
    let stream = TcpStream::connect(addr).await.unwrap();
    let stream = caller.call(stream).await.unwrap();
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    let driving = tokio::spawn(connection);
    let request = Request::post(format!("http://leader/robust.v1.{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let mut requests = requests.ready().await.unwrap();
    let (answer, mut body) = requests.send_request(request, false).unwrap();
    // gRPC's frame: as it is, and no bytes.
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let (head, mut said) = answer.await.unwrap().into_parts();
    let code = match head.headers.get("grpc-status") {
        Some(code) => code.clone(),
        None => {
            while said.data().await.is_some() {}
            let trailers = said.trailers().await.unwrap().unwrap();
            trailers["grpc-status"].clone()
        }
    };
    driving.abort();
    Code::from_bytes(code.as_bytes())
}

#[tokio::test]
async fn every_method_for_nodes_and_their_roles_is_refused_to_who_has_no_session() {
    let leader = Leader::start().await;
    let holder = JoinToken::of(TOKEN).holders().unwrap().caller().unwrap();
    let key = NodeKey::new().unwrap();
    let former = enroll(leader.addr, TOKEN, "b", &key).await.unwrap();
    leader.members.revoke_node("b", unix_ms()).unwrap();
    let all = [methods("NodeHost"), methods("RoleHost")].concat();
    assert!(all.len() >= 13, "{all:?}");
    for (method, _) in OPEN {
        assert!(all.iter().any(|known| known == method), "{method}");
    }
    for method in &all {
        let open = OPEN.iter().find(|(open, _)| open == method);
        let expected = open.map_or(Code::Unauthenticated, |(_, code)| *code);
        let told = heard(leader.addr, &holder, method).await;
        assert_eq!(told, expected, "{method}, of who holds a join token");
        // It may not even ask for another certificate; the clock is nobody's secret.
        let expected = match method.as_str() {
            "NodeHost/Clock" => Code::Ok,
            "NodeHost/Enroll" => Code::InvalidArgument,
            _ => Code::Unauthenticated,
        };
        let told = heard(leader.addr, &former, method).await;
        assert_eq!(told, expected, "{method}, of who was a node");
    }
}
