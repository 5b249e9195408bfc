// A server and a client made with the official Go SDK.
//
// Usage: greeter serve ADDRESS | serve stdio | call URL ERA
// A client reads one name a line, and writes one answer a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A client of no revision asks for the newest, and goes on with what the server has.
var eras = map[string]string{"session": "2025-11-25", "stateless": "2026-07-28", "either": ""}

type greeting struct {
	Name string `json:"name"`
}

func serve(where string) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, func(_ context.Context, _ *mcp.CallToolRequest, input greeting) (*mcp.CallToolResult, any, error) {
		text := fmt.Sprintf("Hi %s from %d", input.Name, os.Getpid())
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	if where == "stdio" {
		return server.Run(context.Background(), &mcp.StdioTransport{})
	}
	always := func(*http.Request) *mcp.Server { return server }
	sessions := mcp.NewStreamableHTTPHandler(always, nil)
	// A handler with sessions does not speak the stateless era.
	stateless := mcp.NewStreamableHTTPHandler(always, &mcp.StreamableHTTPOptions{Stateless: true})
	return http.ListenAndServe(where, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("MCP-Protocol-Version") == eras["stateless"] {
			stateless.ServeHTTP(w, r)
		} else {
			sessions.ServeHTTP(w, r)
		}
	}))
}

func call(url, era string) error {
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "sdks", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: eras[era]})
	if err != nil {
		return err
	}
	names := bufio.NewScanner(os.Stdin)
	for names.Scan() {
		line := map[string]string{}
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "greet", Arguments: greeting{names.Text()}})
		if err != nil {
			line["failed"] = err.Error()
		} else {
			line["text"] = result.Content[0].(*mcp.TextContent).Text
		}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			return err
		}
	}
	return names.Err()
}

func main() {
	switch arguments := os.Args[1:]; arguments[0] {
	case "serve":
		log.Fatal(serve(arguments[1]))
	case "call":
		if err := call(arguments[1], arguments[2]); err != nil {
			log.Fatal(err)
		}
	}
}
