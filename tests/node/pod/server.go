package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type greeting struct {
	Name string `json:"name"`
}

// serve is an MCP server of both eras that keeps no session, with the tool `greet` of the Go SDK's `everything`, which speaks the legacy one only.
func serve(ctx context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: pod serve ADDRESS")
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "say hi"}, func(_ context.Context, _ *mcp.CallToolRequest, input greeting) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hi " + input.Name}}}, nil, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	return listen(ctx, &http.Server{Addr: arguments[0], Handler: handler, ReadHeaderTimeout: 10 * time.Second}, (*http.Server).ListenAndServe)
}

// listen serves until the context ends, and answers what came before that.
func listen(ctx context.Context, server *http.Server, serve func(*http.Server) error) error {
	go func() {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ending)
	}()
	if err := serve(server); err != http.ErrServerClosed {
		return err
	}
	return nil
}
