// Package redisconn stands in for ToolHive's connections to Redis, which no decision needs: each one fails.
package redisconn

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/redis/go-redis/v9"
)

var errAbsent = errors.New("connections to Redis are left out of hack/cedar-vectors")

type TLSConfig struct {
	InsecureSkipVerify bool
	CACert             []byte
}

type Config struct {
	Addr, Password string
	TLS            *TLSConfig
}

func NewClient(context.Context, *Config) (redis.UniversalClient, error) { return nil, errAbsent }

func BuildTLSConfig(*TLSConfig) (*tls.Config, error) { return nil, errAbsent }
