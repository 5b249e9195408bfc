// What the pods of the tests run: one static program with a command for each part.
//
//	pod call [FLAGS] URL NAME      calls the tool `greet` of the MCP server at URL; a line of JSON tells of each call
//	pod serve [-fill MIB] ADDRESS  serves MCP over streamable HTTP with the tools `greet` and `inspect`
//	pod serve sse ADDRESS          serves the same over HTTP with server-sent events, which is of the legacy era only
//	pod serve stdio [FLAGS]        serves the same over standard input and output; flags make it a bad server
//	pod webhook [FLAGS]            serves request webhooks over HTTPS
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("usage: pod call|serve|webhook ...")
	}
	command, rest := arguments[0], arguments[1:]
	switch command {
	case "call":
		return call(ctx, rest)
	case "serve":
		return serve(ctx, rest)
	case "webhook":
		return webhook(ctx, rest)
	}
	return fmt.Errorf("unknown command %q", command)
}
