package c1000k;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;
import java.util.function.IntSupplier;

/**
 * The port beside that of the WebSockets, the same for all servers: `POST /publish` sends its body as one text message to every
 * client, from one thread, as in the article; `GET /clients` counts the clients; `GET /heap` collects garbage and answers with
 * the bytes of live objects.
 */
final class Publications {
    private Publications() {}

    static void serve(int port, Consumer<String> broadcast, IntSupplier clients) throws IOException {
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
        server.createContext("/publish", exchange -> {
            String message = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            broadcast.accept(message);
            answer(exchange, "ok");
        });
        server.createContext("/clients", exchange -> answer(exchange, Integer.toString(clients.getAsInt())));
        server.createContext("/heap", exchange -> answer(exchange, Long.toString(liveBytes())));
        server.start();
    }

    private static long liveBytes() {
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }

    private static void answer(HttpExchange exchange, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
