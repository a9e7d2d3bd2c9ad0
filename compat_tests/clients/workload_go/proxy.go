package main

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
)

// proxy copies connections to a broker and counts requests by client id and API key.
type proxy struct {
	target string
	mutex  sync.Mutex
	counts map[string]map[int16]int64
}

// listenProxy starts a proxy for target and returns the port it listens on.
func listenProxy(target string) (*proxy, int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	p := &proxy{target: target, counts: map[string]map[int16]int64{}}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p, listener.Addr().(*net.TCPAddr).Port, nil
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	broker, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer broker.Close()
	go func() {
		io.Copy(client, broker)
		client.Close()
		broker.Close()
	}()
	p.forward(client, broker)
}

// forward copies whole requests. Only the size and the header up to the client id are decoded.
func (p *proxy) forward(client io.Reader, broker io.Writer) {
	head := make([]byte, 14)
	for {
		if _, err := io.ReadFull(client, head); err != nil {
			return
		}
		size := int64(binary.BigEndian.Uint32(head))
		length := int64(int16(binary.BigEndian.Uint16(head[12:])))
		id := make([]byte, max(length, 0))
		if _, err := io.ReadFull(client, id); err != nil {
			return
		}
		p.count(string(id), int16(binary.BigEndian.Uint16(head[4:])))
		if _, err := broker.Write(append(append([]byte{}, head...), id...)); err != nil {
			return
		}
		if _, err := io.CopyN(broker, client, size-10-int64(len(id))); err != nil {
			return
		}
	}
}

func (p *proxy) count(id string, key int16) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.counts[id] == nil {
		p.counts[id] = map[int16]int64{}
	}
	p.counts[id][key]++
}

// sum returns the requests of all clients with an id that begins with prefix, by API key.
func (p *proxy) sum(prefix string) map[int16]int64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	out := map[int16]int64{}
	for id, keys := range p.counts {
		if strings.HasPrefix(id, prefix) {
			for key, count := range keys {
				out[key] += count
			}
		}
	}
	return out
}
