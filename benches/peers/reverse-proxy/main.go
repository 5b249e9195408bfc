// The reverse proxy of Go's standard library in front of one server: what a proxy costs that knows nothing of MCP.
package main

import (
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
)

func main() {
	listen := flag.String("listen", "", "address to listen on")
	backend := flag.String("backend", "", "URL of the server")
	flag.Parse()
	target, err := url.Parse(*backend)
	if err != nil {
		log.Fatal(err)
	}
	// More kept connections than there are callers, and events passed on as they come.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 1000, 1000
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
	}
	log.Fatal(http.ListenAndServe(*listen, proxy))
}
