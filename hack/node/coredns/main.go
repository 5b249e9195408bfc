// The cluster's DNS server: CoreDNS with the plugins that one node needs. Its whole set would double what is built.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() {
	// The order in which a query passes them.
	dnsserver.Directives = []string{"ready", "errors", "cache", "kubernetes"}
}

func main() { coremain.Run() }
