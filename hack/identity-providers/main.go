// Command zitadel runs the example provider of Zitadel's OpenID Connect library: its endpoints, and its storage in memory. Some things that the
// example fixes are changed. Its service user (id sid1, secret verysecret) gets JWTs and not opaque tokens. A scope `audience:<name>` sets the
// audience of a token, as `urn:zitadel:iam:org:project:id:<id>:aud` does for a Zitadel installation; `subject:<name>` its subject, and
// `lifetime:<duration>` for how long it is valid. A client that may (id exchanger, secret exchanger-secret) exchanges any token of the provider's
// for a JWT of the same subject (RFC 8693); each time, "exchanged a token" is a line of the log before the answer.
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
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	audienceScope = "audience:"
	subjectScope  = "subject:"
	lifetimeScope = "lifetime:"
	exchanger     = "exchanger"
)

// provider is the example's storage with the changes.
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
		} else if subject, ok := strings.CutPrefix(scope, subjectScope); ok {
			request.Subject = subject
		} else {
			request.Scopes = append(request.Scopes, scope)
		}
	}
	return request, nil
}

func (p provider) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	client, err := p.Storage.GetClientByClientID(ctx, id)
	if err == nil && id == exchanger {
		client = jwtClient{client}
	}
	return client, err
}

func (p provider) CreateAccessToken(ctx context.Context, request op.TokenRequest) (string, time.Time, error) {
	id, expires, err := p.Storage.CreateAccessToken(ctx, request)
	for _, scope := range request.GetScopes() {
		if text, ok := strings.CutPrefix(scope, lifetimeScope); ok {
			lifetime, err := time.ParseDuration(text)
			return id, time.Now().Add(lifetime), err
		}
	}
	return id, expires, err
}

// ValidateTokenExchangeRequest lets any subject be exchanged: the example asks whether it is one of its two users.
func (p provider) ValidateTokenExchangeRequest(_ context.Context, request op.TokenExchangeRequest) error {
	if request.GetRequestedTokenType() == "" {
		request.SetRequestedTokenType(oidc.AccessTokenType)
	}
	return nil
}

func (p provider) CreateTokenExchangeRequest(ctx context.Context, request op.TokenExchangeRequest) error {
	slog.InfoContext(ctx, "exchanged a token", "subject", request.GetExchangeSubject())
	return p.Storage.CreateTokenExchangeRequest(ctx, request)
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
	storage.RegisterClients(storage.WebClient(exchanger, exchanger+"-secret"))
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
