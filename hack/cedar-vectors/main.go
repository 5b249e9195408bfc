// Asks ToolHive's own code for the decision of each vector in mcp/authz/tests/vectors, and prints all of them (run.sh keeps them).
//
// A vector is a message that goes through ToolHive's HTTP middleware, parser and authorization, to a server that answers with the vector's
// list. What comes of it is one of these:
//
//	"allow"             it reached the server
//	"deny"              403, as policies say
//	"error"             403, as a policy cannot be evaluated
//	"malformed"         400: the message is none
//	["a", "b"]          the names or URIs of the list that comes back
//	"withheld"          500 in place of the list
//	"refused"           the middleware is not made of such a configuration
//	"allow or deny"     it depends on the order of a Go map
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/stacklok/toolhive/pkg/auth"
	"github.com/stacklok/toolhive/pkg/authz"
	"github.com/stacklok/toolhive/pkg/authz/authorizers"
	"github.com/stacklok/toolhive/pkg/authz/authorizers/cedar"
	"github.com/stacklok/toolhive/pkg/mcp"
)

// The form of the files; mcp/authz/tests/authz/vectors.rs says what its members mean.
type file struct {
	About string
	Cases []vectors
}

type vectors struct {
	Comment  string
	Policies []string
	Entities json.RawMessage
	Config   cedar.ConfigOptions
	Server   string
	Rows     []row
}

type row struct {
	Name, Comment          string
	Claims                 map[string]any
	Source, Backend        string
	Before                 [][]json.RawMessage
	Call, Get, Read, Skill *string
	Arguments, Params      json.RawMessage
	Method, List           string
	Items                  []json.RawMessage
	Decision, Why          string
	Visible                []string
	Withheld               bool
}

// The lists: the member of an answer, the method that it answers, and the member of an item that names it.
var lists = map[string][2]string{
	"tools":             {"tools/list", "name"},
	"prompts":           {"prompts/list", "name"},
	"resources":         {"resources/list", "uri"},
	"resourceTemplates": {"resources/templates/list", "uriTemplate"},
	"skills":            {"skills/list", "uri"},
}

// What ToolHive logs while it decides. The client is not told whether a policy failed.
var logged bytes.Buffer

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	var printed []string
	for _, path := range os.Args[1:] {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		cases, err := record(path)
		if err != nil {
			fail(fmt.Errorf("%s: %w", path, err))
		}
		printed = append(printed, fmt.Sprintf("  %q: [\n    %s\n  ]", name, strings.Join(cases, ",\n    ")))
	}
	fmt.Printf("{\n%s\n}\n", strings.Join(printed, ",\n"))
}

// `log` would write to what slog collects.
func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A line of JSON for each case of a file.
func record(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var read file
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return nil, err
	}
	var lines []string
	for number, vectors := range read.Cases {
		var answers []any
		for place, row := range vectors.Rows {
			answer, err := askOften(vectors, row)
			if err != nil {
				return nil, fmt.Errorf("case %d, row %d: %w", number, place, err)
			}
			answers = append(answers, answer)
		}
		var line bytes.Buffer
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(answers); err != nil {
			return nil, err
		}
		lines = append(lines, strings.TrimSpace(line.String()))
	}
	return lines, nil
}

// Asks for a row so often that two answers by chance, as by the order of a map, are both seen.
func askOften(vectors vectors, row row) (any, error) {
	first, err := ask(vectors, row)
	for range 40 {
		if err != nil {
			return nil, err
		}
		var again any
		if again, err = ask(vectors, row); !reflect.DeepEqual(first, again) {
			both := []string{fmt.Sprint(first), fmt.Sprint(again)}
			slices.Sort(both)
			return strings.Join(both, " or "), err
		}
	}
	return first, err
}

// Sends the message of a row, after the lists before it, through a middleware of its own: it remembers hints of tools.
func ask(vectors vectors, row row) (any, error) {
	vectors.Config.Policies = vectors.Policies
	vectors.Config.EntitiesJSON = string(vectors.Entities)
	config, err := authz.NewConfig(cedar.Config{Version: "1.0", Type: cedar.ConfigType, Options: &vectors.Config})
	if err != nil {
		return nil, err
	}
	var reached bool
	var result string
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached = true
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, result)
	})
	authorization, err := authz.CreateMiddlewareFromConfig(config, vectors.Server, nil)
	if err != nil {
		return "refused", nil
	}
	handler := mcp.ParsingMiddleware(authorization(server))
	send := func(message string) *httptest.ResponseRecorder {
		reached = false
		logged.Reset()
		request := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(message))
		request.Header.Set("Content-Type", "application/json")
		ctx := auth.WithIdentity(request.Context(), identity(row, vectors.Config.PrimaryUpstreamProvider))
		if row.Backend != "" {
			ctx = authorizers.WithResourceMetadata(ctx, authorizers.ResourceMetadata{BackendID: row.Backend})
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request.WithContext(ctx))
		return answer
	}
	sendList := func(member string, items []json.RawMessage) *httptest.ResponseRecorder {
		text, err := json.Marshal(append([]json.RawMessage{}, items...))
		if err != nil {
			fail(err)
		}
		result = fmt.Sprintf(`{%q:%s}`, member, text)
		return send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{}}`, lists[member][0]))
	}

	for _, page := range row.Before {
		if answer := sendList("tools", page); answer.Code != http.StatusOK {
			return nil, fmt.Errorf("the list before: %d %s", answer.Code, answer.Body)
		}
	}
	if row.List != "" {
		answer := sendList(row.List, row.Items)
		switch answer.Code {
		case http.StatusOK:
			return names(answer.Body.Bytes(), row.List)
		case http.StatusInternalServerError:
			return "withheld", nil
		}
		return nil, fmt.Errorf("%d %s", answer.Code, answer.Body)
	}
	result = "{}"
	answer := send(message(row))
	switch {
	case reached:
		return "allow", nil
	case answer.Code == http.StatusForbidden && strings.Contains(logged.String(), "authorization error: "):
		return "error", nil
	case answer.Code == http.StatusForbidden:
		return "deny", nil
	case answer.Code == http.StatusBadRequest:
		return "malformed", nil
	}
	return nil, fmt.Errorf("%d %s", answer.Code, answer.Body)
}

// The caller, as ToolHive's login leaves it.
func identity(row row, provider string) *auth.Identity {
	claims := row.Claims
	if claims == nil {
		claims = map[string]any{"sub": "u1"}
	}
	caller := &auth.Identity{PrincipalInfo: auth.PrincipalInfo{Claims: claims}}
	caller.Subject, _ = claims["sub"].(string)
	upstream, named := strings.CutPrefix(row.Source, "upstream:")
	switch {
	case row.Source == "local":
		// Its times are integers of Go.
		for name, value := range claims {
			if number, ok := value.(float64); ok {
				claims[name] = int64(number)
			}
		}
	case row.Source == "no-upstream-session":
		caller.SessionlessGrant = true
	case row.Source == "upstream-opaque":
		caller.UpstreamTokens = map[string]string{provider: "opaque"}
	case named:
		// The claims are those of the token of this provider, or of its two tokens.
		caller.UpstreamTokens = map[string]string{upstream: token(claims)}
		caller.Claims = map[string]any{"sub": "the proxy's"}
	}
	return caller
}

func token(claims map[string]any) string {
	text, err := json.Marshal(claims)
	if err != nil {
		fail(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(text) + "."
}

func message(row row) string {
	method, params := row.Method, string(row.Params)
	for _, short := range []struct {
		target         *string
		method, member string
	}{
		{row.Call, "tools/call", "name"},
		{row.Get, "prompts/get", "name"},
		{row.Read, "resources/read", "uri"},
		{row.Skill, "skills/get", "uri"},
	} {
		if short.target == nil {
			continue
		}
		target, err := json.Marshal(*short.target)
		if err != nil {
			fail(err)
		}
		method, params = short.method, fmt.Sprintf(`{%q:%s}`, short.member, target)
		if row.Arguments != nil {
			params = fmt.Sprintf(`{%q:%s,"arguments":%s}`, short.member, target, row.Arguments)
		}
	}
	members := fmt.Sprintf(`"jsonrpc":"2.0","method":%q`, method)
	if !strings.HasPrefix(method, "notifications/") {
		members += `,"id":1`
	}
	if params != "" {
		members += `,"params":` + params
	}
	return "{" + members + "}"
}

// What a list that came back names.
func names(body []byte, member string) ([]string, error) {
	var answer struct {
		Result map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	var items []map[string]any
	if err := json.Unmarshal(answer.Result[member], &items); err != nil {
		return nil, err
	}
	found := []string{}
	for _, item := range items {
		found = append(found, item[lists[member][1]].(string))
	}
	return found, nil
}
