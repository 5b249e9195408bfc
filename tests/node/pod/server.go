package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serve is an MCP server over the transport that the arguments name. It keeps no session, and speaks both eras where the transport has both.
func serve(ctx context.Context, arguments []string) error {
	transport := "streamable"
	if len(arguments) > 0 && (arguments[0] == "stdio" || arguments[0] == "sse") {
		transport, arguments = arguments[0], arguments[1:]
	}
	if transport == "stdio" {
		return serveStdio(ctx, arguments)
	}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	fill := flags.Int("fill", 0, "hold so many MiB of memory")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	arguments = flags.Args()
	// The kernel counts a page once it is written to.
	held := bytes.Repeat([]byte{1}, *fill<<20)
	defer runtime.KeepAlive(held)
	if len(arguments) == 0 {
		return fmt.Errorf("usage: pod serve [sse] [-fill MIB] ADDRESS, or pod serve stdio [FLAGS]; further arguments are there to be inspected")
	}
	server := newServer()
	always := func(*http.Request) *mcp.Server { return server }
	listener := &http.Server{Addr: arguments[0], ReadHeaderTimeout: 10 * time.Second}
	if transport == "sse" {
		listener.Handler = mcp.NewSSEHandler(always, nil)
		// The streams of sessions end with the process, which would wait for them in vain.
		listener.BaseContext = func(net.Listener) context.Context { return ctx }
	} else {
		listener.Handler = mcp.NewStreamableHTTPHandler(always, &mcp.StreamableHTTPOptions{Stateless: true})
	}
	return listen(ctx, listener, (*http.Server).ListenAndServe)
}

type greeting struct {
	Name string `json:"name"`
}

type inspection struct {
	Env  []string `json:"env,omitempty" jsonschema:"variables of the environment"`
	File string   `json:"file,omitempty" jsonschema:"a file to read"`
}

// newServer has the tool `greet` of the Go SDK's `everything`, which speaks the legacy era only, and `inspect`, which tells what the process was given.
func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "say hi"}, func(_ context.Context, _ *mcp.CallToolRequest, input greeting) (*mcp.CallToolResult, any, error) {
		return text("Hi " + input.Name), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "inspect", Description: "tell arguments, variables, user and a file"}, func(_ context.Context, _ *mcp.CallToolRequest, input inspection) (*mcp.CallToolResult, any, error) {
		env := map[string]string{}
		for _, name := range input.Env {
			if value, ok := os.LookupEnv(name); ok {
				env[name] = value
			}
		}
		found := map[string]any{"args": os.Args[1:], "env": env, "uid": os.Getuid()}
		if input.File != "" {
			content, err := os.ReadFile(input.File)
			if err != nil {
				return nil, nil, err
			}
			found["file"] = string(content)
		}
		result, err := json.Marshal(found)
		return text(string(result)), nil, err
	})
	return server
}

func text(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// serveStdio serves over standard input and output, well or badly.
func serveStdio(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("serve stdio", flag.ContinueOnError)
	ignoreEOF := flags.Bool("ignore-eof", false, "go on when the input has ended")
	garbage := flags.Bool("garbage", false, "write lines that are no JSON-RPC before each answer")
	longLine := flags.Int("long-line", 0, "write a line of so many bytes before the first answer")
	deaf := flags.Bool("deaf", false, "never read the input")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	var err error
	if !*deaf {
		server := newServer()
		server.AddReceivingMiddleware(greetAgain())
		output := &badOutput{garbage: *garbage, longLine: *longLine}
		err = server.Run(ctx, &mcp.IOTransport{Reader: os.Stdin, Writer: output})
	}
	if *deaf || *ignoreEOF {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// greetAgain answers each further `initialize` as the first, which the SDK refuses: two proxies at once each send theirs.
func greetAgain() mcp.Middleware {
	var lock sync.Mutex
	var first mcp.Result
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, request)
			if method != "initialize" {
				return result, err
			}
			lock.Lock()
			defer lock.Unlock()
			if err != nil && first != nil {
				return first, nil
			}
			first = result
			return result, err
		}
	}
}

// noise is what programs print that do not know that their output is a protocol, a line each.
var noise = []byte("starting up...\n\n{\"level\":\"info\"}\n{\"jsonrpc\":\"2.0\",\"id\":\n[]\nnull\n\x00\xff\xfe\x1b[2J\n")

// badOutput writes messages to standard output, and what does not belong there before them.
type badOutput struct {
	garbage  bool
	longLine int
}

// Write takes one message. The SDK writes one at a time.
func (o *badOutput) Write(message []byte) (int, error) {
	if o.longLine > 0 {
		if err := writeLine(o.longLine); err != nil {
			return 0, err
		}
		o.longLine = 0
	}
	if o.garbage {
		if _, err := os.Stdout.Write(noise); err != nil {
			return 0, err
		}
	}
	return os.Stdout.Write(message)
}

func (o *badOutput) Close() error { return nil }

func writeLine(length int) error {
	piece := make([]byte, 64<<10)
	for i := range piece {
		piece[i] = 'x'
	}
	for length > 0 {
		piece = piece[:min(length, len(piece))]
		if _, err := os.Stdout.Write(piece); err != nil {
			return err
		}
		length -= len(piece)
	}
	_, err := os.Stdout.Write([]byte{'\n'})
	return err
}

// listen serves until the context ends, and answers what came before that.
func listen(ctx context.Context, server *http.Server, serve func(*http.Server) error) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ending)
	}()
	if err := serve(server); err != http.ErrServerClosed {
		return err
	}
	<-ended
	return nil
}
