//! Sends each WebSocket message back; one thread. The echo server of the library's examples, with three differences that its
//! users know: TCP_NODELAY, UTF-8 checked by SIMD, and a stream that is no longer boxed by hyper after the handshake.
//! Usage: fastwebsockets-echo IP:PORT

use fastwebsockets::upgrade::{self, UpgradeFut};
use fastwebsockets::{FragmentCollector, OpCode, Role, WebSocket, WebSocketError};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

fn main() {
    let address = std::env::args().nth(1).expect("usage: fastwebsockets-echo IP:PORT");
    if address == "--version" {
        println!("0.10");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime starts").block_on(serve(&address));
}

async fn serve(address: &str) {
    let listener = TcpListener::bind(address).await.expect("the address is free");
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // A socket without this option still works.
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(begin))
                .with_upgrades();
            if let Err(error) = connection.await {
                eprintln!("connection: {error}");
            }
        });
    }
}

async fn begin(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, WebSocketError> {
    let (response, upgrade) = upgrade::upgrade(&mut request)?;
    tokio::spawn(tokio::task::unconstrained(talk(upgrade)));
    Ok(response)
}

async fn talk(upgrade: UpgradeFut) {
    let Ok(socket) = upgrade.await else { return };
    // The client waits for the response, so nothing of its messages is read yet.
    let upgraded = socket.into_inner().into_inner();
    let _ = match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) if parts.read_buf.is_empty() => {
            echo(WebSocket::after_handshake(parts.io.into_inner(), Role::Server)).await
        }
        Ok(_) => Err(WebSocketError::ConnectionClosed),
        Err(upgraded) => {
            echo(WebSocket::after_handshake(TokioIo::new(upgraded), Role::Server)).await
        }
    };
}

async fn echo<S>(socket: WebSocket<S>) -> Result<(), WebSocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut socket = FragmentCollector::new(socket);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            _ => {}
        }
    }
}
