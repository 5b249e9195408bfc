package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"strings"
	"time"
)

// webhook serves until it is asked to end:
//
//	/echo      answers with the request's own document, as an echo server does: there is no verdict in it
//	/slow      allows the call after the time of -delay
//	/mutate    greets bob by his full name
//
// Files are read again for each connection and request, so that a Secret's edit is seen without a restart.
func webhook(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("webhook", flag.ContinueOnError)
	address := flags.String("listen", ":8443", "address")
	certificate := flags.String("certificate", "", "file of the certificate; one is made and signed by itself when absent")
	key := flags.String("key", "", "file of its key")
	clients := flags.String("client-ca", "", "file of the authorities that callers need a certificate of")
	signing := flags.String("hmac", "", "file of the key that signs requests; with a second key in it, on a line of its own, either is good")
	delay := flags.Duration("delay", 3*time.Second, "how long /slow takes")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := tlsConfig(*certificate, *key, *clients)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	route := func(path string, answer func(*http.Request, []byte) ([]byte, error)) {
		routes.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
			signer := "nobody"
			if err == nil {
				signer, err = verify(r, body, *signing)
			}
			if err == nil {
				body, err = answer(r, body)
			}
			client := "nobody"
			if shown := r.TLS.PeerCertificates; len(shown) > 0 {
				client = shown[0].Subject.CommonName
			}
			fmt.Printf("%s signed with %s by %s, error: %v\n", path, signer, client, err)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
		})
	}
	route("/echo", func(_ *http.Request, body []byte) ([]byte, error) { return body, nil })
	route("/slow", func(r *http.Request, body []byte) ([]byte, error) {
		select {
		case <-time.After(*delay):
			return review(r, body)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	})
	route("/mutate", review)

	server := &http.Server{Addr: *address, Handler: routes, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second}
	return listen(ctx, server, func(server *http.Server) error { return server.ListenAndServeTLS("", "") })
}

func tlsConfig(certificate, key, clients string) (*tls.Config, error) {
	config := &tls.Config{}
	if certificate == "" {
		own, err := selfSigned()
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	} else {
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certificate, key)
			if err == nil {
				fmt.Println("showing", pair.Leaf.Subject.CommonName)
			}
			return &pair, err
		}
	}
	if clients != "" {
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pem, err := os.ReadFile(clients)
			if err != nil {
				return nil, err
			}
			asking := config.Clone()
			asking.ClientCAs = x509.NewCertPool()
			asking.ClientCAs.AppendCertsFromPEM(pem)
			asking.ClientAuth = tls.RequireAndVerifyClientCert
			return asking, nil
		}
	}
	return config, nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// verify checks the signature, which covers `TIMESTAMP.BODY`, and returns which of the keys fits.
func verify(r *http.Request, body []byte, file string) (string, error) {
	if file == "" {
		return "nothing", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	signature, _ := hex.DecodeString(strings.TrimPrefix(r.Header.Get("X-ToolHive-Signature"), "sha256="))
	keys := strings.Fields(string(text))
	for index, key := range keys {
		mac := hmac.New(sha256.New, []byte(key))
		fmt.Fprintf(mac, "%s.%s", r.Header.Get("X-ToolHive-Timestamp"), body)
		if hmac.Equal(signature, mac.Sum(nil)) {
			return fmt.Sprintf("key %d of %d", index+1, len(keys)), nil
		}
	}
	return "", fmt.Errorf("the signature fits none of %d keys", len(keys))
}

func review(r *http.Request, body []byte) ([]byte, error) {
	var asked struct {
		Version string `json:"version"`
		UID     string `json:"uid"`
		Request struct {
			Params struct {
				Arguments struct{ Name string } `json:"arguments"`
			} `json:"params"`
		} `json:"mcp_request"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	answer := map[string]any{"version": asked.Version, "uid": asked.UID, "allowed": true}
	if r.URL.Path == "/mutate" && asked.Request.Params.Arguments.Name == "bob" {
		answer["patch_type"] = "json_patch"
		answer["patch"] = []any{map[string]any{"op": "replace", "path": "/mcp_request/params/arguments/name", "value": "Robert"}}
	}
	return json.Marshal(answer)
}
