// Package jwkfetch stands in for the keys that ToolHive fetches to verify tokens, which no decision needs: each fetch fails.
package jwkfetch

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lestrrat-go/httprc/v3"
	"github.com/lestrrat-go/jwx/v4/jwk"
)

var errAbsent = errors.New("keys of tokens are left out of hack/cedar-vectors")

type Option struct{}

func WithHTTPClient(*http.Client) Option { return Option{} }

func WithMaxBodySize(int64) Option { return Option{} }

func WithConstantInterval(time.Duration) Option { return Option{} }

type Cache struct{}

func NewCache(context.Context, *httprc.Client, ...Option) (*Cache, error) { return nil, errAbsent }

func (*Cache) Register(context.Context, string, ...Option) error { return errAbsent }

func (*Cache) IsRegistered(context.Context, string) bool { return false }

func (*Cache) Lookup(context.Context, string) (jwk.Set, error) { return nil, errAbsent }

func (*Cache) Refresh(context.Context, string) (jwk.Set, error) { return nil, errAbsent }

func (*Cache) Shutdown(context.Context) error { return nil }
