// Command zitadel runs the example provider of Zitadel's OpenID Connect library: its endpoints, and its storage in memory. Two things that the
// example fixes are changed. Its service user (id sid1, secret verysecret) gets JWTs and not opaque tokens. And a scope `audience:<name>` sets the
// audience of a token, as `urn:zitadel:iam:org:project:id:<id>:aud` does for a Zitadel installation.
//
// Usage: zitadel ADDRESS. It prints the issuer in a line when it serves, and ends when its standard input does. A start makes a new signing key.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const audienceScope = "audience:"

// provider is the example's storage with the two changes.
type provider struct{ *storage.Storage }

type jwtClient struct{ op.Client }

func (jwtClient) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

func (p provider) ClientCredentials(ctx context.Context, id, secret string) (op.Client, error) {
	client, err := p.Storage.ClientCredentials(ctx, id, secret)
	if err != nil {
		return nil, err
	}
	return jwtClient{client}, nil
}

func (p provider) ClientCredentialsTokenRequest(ctx context.Context, client string, scopes []string) (op.TokenRequest, error) {
	request := &oidc.JWTTokenRequest{Subject: client}
	for _, scope := range scopes {
		if audience, ok := strings.CutPrefix(scope, audienceScope); ok {
			request.Audience = append(request.Audience, audience)
		} else {
			request.Scopes = append(request.Scopes, scope)
		}
	}
	return request, nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "zitadel:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: zitadel ADDRESS")
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		return err
	}
	issuer := "http://" + listener.Addr().String()
	memory := provider{storage.NewStorage(storage.NewUserStore(issuer))}
	handler := exampleop.SetupServer(issuer, memory, slog.New(slog.NewTextHandler(os.Stderr, nil)), false)
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	go func() { ended <- http.Serve(listener, handler) }()
	fmt.Println(issuer)
	return <-ended
}
