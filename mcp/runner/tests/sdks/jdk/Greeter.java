// Calls the tool `greet` by the JDK's own HttpClient, which asks for HTTP/2 with each first request.
//
// Usage: java Greeter.java URL NAME
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

class Greeter {
    static final HttpClient CLIENT = HttpClient.newHttpClient();

    static String post(String url, String session, String message) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(url))
                .header("Content-Type", "application/json")
                .header("Accept", "application/json, text/event-stream");
        if (session != null) request.header("Mcp-Session-Id", session);
        var response = CLIENT.send(request.POST(HttpRequest.BodyPublishers.ofString(message)).build(), BodyHandlers.ofString());
        if (response.statusCode() / 100 != 2) throw new Exception(response.statusCode() + " " + response.body());
        return session == null ? response.headers().firstValue("Mcp-Session-Id").orElseThrow() : response.body();
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0], name = arguments[1];
        var session = post(url, null, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":"
                + "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"jdk\",\"version\":\"1\"}}}");
        post(url, session, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
        System.out.println(post(url, session, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":"
                + "{\"name\":\"greet\",\"arguments\":{\"name\":\"" + name + "\"}}}"));
    }
}
