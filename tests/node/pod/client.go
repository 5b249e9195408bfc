package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// undelivered is the code by which the SDK says that its transport did not deliver a message (ErrRejected of its internal/jsonrpc2).
const undelivered = -32005

// eras are the MCP revisions that a client is made for: with sessions, and without.
var eras = map[string]string{"legacy": "2025-11-25", "stateless": "2026-07-28"}

// outcome is what one call came to. Answered: the tool's text. Refused: the JSON-RPC error of a gate or server. Lost: nobody answered.
type outcome struct {
	Outcome string `json:"outcome"`
	Code    int64  `json:"code"`
	Text    string `json:"text"`
	// When it began, since 1970, and how long it took.
	Began        int64 `json:"began"`
	Milliseconds int64 `json:"milliseconds"`
}

func call(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	era := flags.String("era", "stateless", "legacy or stateless")
	transport := flags.String("transport", "streamable", "streamable, or sse, which is of the legacy era only")
	inspect := flags.String("inspect", "", "call the tool `inspect` with these arguments, a JSON object, and not `greet`")
	once := flags.Bool("once", false, "make one call and end")
	token := flags.String("token", "", "file of the bearer token")
	patience := flags.Duration("patience", time.Minute, "how long one call may take, with the session that is opened for it")
	rate := flags.Int("rate", 1, "calls a second until SIGTERM, each on time whether earlier ones were answered or not")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	sse := *transport == "sse"
	if flags.NArg() != 2 || eras[*era] == "" || !sse && *transport != "streamable" || sse && *era != "legacy" {
		return fmt.Errorf("usage: pod call [-era legacy|stateless] [-transport streamable|sse] [-inspect JSON] [-token FILE] [-rate N] [-patience TIME] [-once] URL NAME")
	}
	c := &caller{url: flags.Arg(0), revision: eras[*era], sse: sse, patience: *patience, http: &http.Client{Transport: &bearer{file: *token}}}
	c.params = &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{"name": flags.Arg(1)}}
	if *inspect != "" {
		c.params = &mcp.CallToolParams{Name: "inspect", Arguments: json.RawMessage(*inspect)}
	}
	if *once {
		c.once(ctx)
		return nil
	}
	ticks := time.NewTicker(time.Second / time.Duration(*rate))
	defer ticks.Stop()
	var calls sync.WaitGroup
	for {
		select {
		case <-ctx.Done():
			calls.Wait()
			return nil
		case <-ticks.C:
			// Calls on their way are finished after SIGTERM too.
			calls.Go(func() { c.once(context.WithoutCancel(ctx)) })
		}
	}
}

type caller struct {
	url, revision string
	sse           bool
	patience      time.Duration
	http          *http.Client
	params        *mcp.CallToolParams

	output sync.Mutex
	// Sessions that no call uses now.
	idle     []*mcp.ClientSession
	sessions sync.Mutex
}

func (c *caller) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	begun := time.Now()
	text, err := c.call(ctx)
	result := outcome{Outcome: "answered", Text: text, Began: begun.UnixMilli(), Milliseconds: time.Since(begun).Milliseconds()}
	if err != nil {
		result.Outcome, result.Text = "lost", err.Error()
		var refusal *jsonrpc.Error
		if errors.As(err, &refusal) && refusal.Code != undelivered {
			result.Outcome, result.Code, result.Text = "refused", refusal.Code, refusal.Message
		}
	}
	c.output.Lock()
	defer c.output.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(result)
}

// call calls the tool in a session of its own for as long as the call takes. A session whose call failed is not used again.
func (c *caller) call(ctx context.Context) (string, error) {
	session, err := c.session(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot connect: %w", err)
	}
	result, err := session.CallTool(ctx, c.params)
	if err != nil {
		_ = session.Close()
		return "", err
	}
	c.sessions.Lock()
	c.idle = append(c.idle, session)
	c.sessions.Unlock()
	var text []string
	for _, content := range result.Content {
		if part, ok := content.(*mcp.TextContent); ok {
			text = append(text, part.Text)
		}
	}
	return strings.Join(text, "\n"), nil
}

func (c *caller) session(ctx context.Context) (*mcp.ClientSession, error) {
	c.sessions.Lock()
	if last := len(c.idle) - 1; last >= 0 {
		session := c.idle[last]
		c.idle = c.idle[:last]
		c.sessions.Unlock()
		return session, nil
	}
	c.sessions.Unlock()
	client := mcp.NewClient(&mcp.Implementation{Name: "pod", Version: "1"}, nil)
	var transport mcp.Transport = &mcp.StreamableClientTransport{
		Endpoint:             c.url,
		HTTPClient:           c.http,
		MaxRetries:           -1, // A call that is lost counts as lost.
		DisableStandaloneSSE: true,
	}
	if c.sse {
		transport = lasting{&mcp.SSEClientTransport{Endpoint: c.url, HTTPClient: c.http}}
	}
	return client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: c.revision})
}

// lasting is a transport whose stream outlives the call that it was opened for. Only its opening ends with that call.
type lasting struct{ mcp.Transport }

func (l lasting) Connect(ctx context.Context) (mcp.Connection, error) {
	stream, cancel := context.WithCancel(context.WithoutCancel(ctx))
	opened := context.AfterFunc(ctx, cancel)
	connection, err := l.Transport.Connect(stream)
	opened()
	return connection, err
}

// bearer shows the token of a file, read again for each request as the kubelet renews it.
type bearer struct{ file string }

func (b *bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	if b.file != "" {
		token, err := os.ReadFile(b.file)
		if err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return http.DefaultTransport.RoundTrip(request)
}
