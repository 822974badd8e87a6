//! Sends each WebSocket message back; one worker thread.
//! Usage: actix-ws-echo IP:PORT

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, rt, web};
use actix_ws::AggregatedMessage;
use std::io;

/// Largest size of a message.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).expect("usage: actix-ws-echo IP:PORT");
    if address == "--version" {
        println!("0.4 (actix-web 4.18)");
        return Ok(());
    }
    let server = || App::new().default_service(web::get().to(begin));
    rt::System::new().block_on(async {
        HttpServer::new(server)
            .workers(1)
            .max_connections(100_000)
            .backlog(65_535)
            .tcp_nodelay(true)
            .bind(&address)?
            .run()
            .await
    })
}

async fn begin(request: HttpRequest, body: web::Payload) -> actix_web::Result<HttpResponse> {
    let (response, mut session, messages) = actix_ws::handle(&request, body)?;
    let mut messages = messages
        .max_frame_size(MESSAGE_BYTES_MAX)
        .aggregate_continuations()
        .max_continuation_size(MESSAGE_BYTES_MAX);
    rt::spawn(async move {
        while let Some(Ok(message)) = messages.recv().await {
            let sent = match message {
                AggregatedMessage::Text(text) => session.text(text).await,
                AggregatedMessage::Binary(bytes) => session.binary(bytes).await,
                AggregatedMessage::Ping(bytes) => session.pong(&bytes).await,
                AggregatedMessage::Pong(_) => Ok(()),
                AggregatedMessage::Close(reason) => {
                    let _ = session.close(reason).await;
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    Ok(response)
}
