//! The way of a fake node to the leader: enrolled with the join token, joined by its certificate.
use hyper_util::rt::TokioIo;
use robust_identity::{Caller, NodeKey};
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, LeaderMessage, NodeMessage};
use robustd::nodes::{JoinToken, SESSION_HEADER};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status, Streaming};

/// What a node shows to the leader, and where that is.
#[derive(Clone)]
pub struct Door {
    addr: String,
    caller: Caller,
}

/// A node that is joined, as its instances need it: their links go over its connection.
#[derive(Clone)]
pub struct Session {
    /// The node's connection.
    pub channel: Channel,
    key: AsciiMetadataValue,
}

/// Both directions of a node's stream.
pub struct Stream {
    /// To the leader.
    pub up: UnboundedSender<NodeMessage>,
    /// From it.
    pub down: Streaming<LeaderMessage>,
}

impl Door {
    /// Has a new key certified for this name.
    pub async fn enroll(addr: &str, token: &JoinToken, name: &str) -> Result<Self, Status> {
        let holders = token
            .holders()
            .map_err(|e| Status::internal(e.to_string()))?;
        let caller = holders
            .caller()
            .map_err(|e| Status::internal(e.to_string()))?;
        let holder = Self {
            addr: addr.to_owned(),
            caller,
        };
        let key = NodeKey::new().map_err(|e| Status::internal(e.to_string()))?;
        let request = v1::EnrollRequest {
            name: name.to_owned(),
            public_key: key.public().to_vec(),
        };
        let mut client = NodeHostClient::new(holder.connect().await?);
        let certificates = client.enroll(request).await?.into_inner().certificates;
        let caller = key.caller(&certificates);
        Ok(Self {
            caller: caller.map_err(|e| Status::internal(e.to_string()))?,
            ..holder
        })
    }

    /// A connection over TLS on which both have proven themselves.
    async fn connect(&self) -> Result<Channel, Status> {
        let Self { addr, caller } = self.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let (addr, caller) = (addr.clone(), caller.clone());
            async move {
                let stream = TcpStream::connect(addr).await?;
                stream.set_nodelay(true)?;
                Ok::<_, std::io::Error>(TokioIo::new(caller.call(stream).await?))
            }
        });
        let endpoint = Endpoint::from_static("http://leader");
        let connected = endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Joins with what the node has; the first orders may be in the stream already.
    pub async fn join(&self, standing: v1::NodeStanding) -> Result<(Session, Stream), Status> {
        let channel = self.connect().await?;
        let (up, messages) = unbounded_channel();
        let mut client = NodeHostClient::new(channel.clone());
        let joining = client.join(UnboundedReceiverStream::new(messages));
        let mut down = joining.await?.into_inner();
        let Some(Down::Greeting(_)) = next(&mut down).await? else {
            return Err(Status::internal("its first message is no greeting"));
        };
        say(&up, Up::Standing(standing));
        let Some(Down::Welcome(welcome)) = next(&mut down).await? else {
            return Err(Status::internal("its second message is no welcome"));
        };
        let key = welcome.session.parse();
        let key = key.map_err(|_| Status::internal("its session has no key"))?;
        Ok((Session { channel, key }, Stream { up, down }))
    }
}

impl Session {
    /// A request that shows the session.
    pub fn shown<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(SESSION_HEADER, self.key.clone());
        request
    }
}

/// What the leader says next; none at the stream's end.
pub async fn next(down: &mut Streaming<LeaderMessage>) -> Result<Option<Down>, Status> {
    let message = down.message().await?;
    Ok(message.and_then(|message| message.body))
}

/// Says something to the leader; a stream that broke is noticed where it is read.
pub fn say(up: &UnboundedSender<NodeMessage>, body: Up) {
    let _ = up.send(NodeMessage { body: Some(body) });
}
