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
	// Without it, an answer that begins before the end of the request was noticed breaks the connection to the server.
	fullDuplex := func(writer http.ResponseWriter, request *http.Request) {
		if err := http.NewResponseController(writer).EnableFullDuplex(); err != nil {
			log.Print(err)
		}
		proxy.ServeHTTP(writer, request)
	}
	log.Fatal(http.ListenAndServe(*listen, http.HandlerFunc(fullDuplex)))
}
