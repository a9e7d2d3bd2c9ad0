// Authentication of franz-go at listeners with SASL and TLS.
// login CELLS: CELLS is a JSON file with login methods; prints a line of JSON for each: "in" if authenticated, else the error.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type cell struct {
	Name        string `json:"name"`
	Bootstrap   string `json:"bootstrap"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	ChecksHost  bool   `json:"checks_host"`
}

func (c cell) login() sasl.Mechanism {
	switch c.Mechanism {
	case "PLAIN":
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: c.Token}.AsMechanism()
	}
	return nil
}

func (c cell) tls() (*tls.Config, error) {
	out := &tls.Config{RootCAs: x509.NewCertPool()}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	out.RootCAs.AppendCertsFromPEM(pem)
	if !c.ChecksHost {
		out.InsecureSkipVerify = true
		out.VerifyConnection = func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: out.RootCAs})
			return err
		}
	}
	if c.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Certificate)
		if err != nil {
			return nil, err
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func class(err error) string {
	var kafka *kerr.Error
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case err == nil:
		return "in"
	case errors.As(err, &kafka):
		return kafka.Message
	case errors.As(err, &authority):
		return "x509.UnknownAuthorityError"
	case errors.As(err, &host):
		return "x509.HostnameError"
	case errors.As(err, &alert):
		return alert.Error()
	case errors.Is(err, io.EOF):
		return "EOF"
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return fmt.Sprintf("%T", err)
}

func authenticate(c cell) string {
	options := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap), kgo.RequestRetries(0), kgo.DialTimeout(10 * time.Second)}
	if c.CA != "" {
		config, err := c.tls()
		if err != nil {
			return err.Error()
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if login := c.login(); login != nil {
		options = append(options, kgo.SASL(login))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err.Error()
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return class(client.Ping(ctx))
}

func main() {
	raw, err := os.ReadFile(os.Args[1])
	var cells []cell
	if err == nil {
		err = json.Unmarshal(raw, &cells)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	results := make([]string, len(cells))
	var all sync.WaitGroup
	for i := range cells {
		all.Add(1)
		go func() {
			defer all.Done()
			results[i] = authenticate(cells[i])
		}()
	}
	all.Wait()
	for i, c := range cells {
		line, _ := json.Marshal([2]string{c.Name, results[i]})
		fmt.Println(string(line))
	}
}
