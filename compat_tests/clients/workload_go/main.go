// Driver of franz-go for compat_tests/workloads, and the proxy that counts the requests of all clients.
// Jobs are read from stdin and results written to stdout, a JSON object per line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Record is [partition, key or null, size of the value or -1, timestamp, number of headers].
type Record struct {
	Partition int32
	Key       *string
	Size      int
	Timestamp int64
	Headers   int
}

func (r *Record) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&r.Partition, &r.Key, &r.Size, &r.Timestamp, &r.Headers})
}

type Transaction struct {
	ID        string `json:"id"`
	Size      int    `json:"size"`
	Aborts    int    `json:"aborts"`
	LeaveOpen bool   `json:"leave_open"`
}

type Job struct {
	ID          int               `json:"id"`
	Op          string            `json:"op"`
	Target      string            `json:"target"`
	Port        int               `json:"port"`
	Prefix      string            `json:"prefix"`
	Bootstrap   string            `json:"bootstrap"`
	ClientID    string            `json:"client_id"`
	Topic       string            `json:"topic"`
	Seed        int64             `json:"seed"`
	Text        bool              `json:"text"`
	Records     []Record          `json:"records"`
	Sync        bool              `json:"sync"`
	Transaction *Transaction      `json:"transaction"`
	Settings    map[string]string `json:"settings"`
	Handle      string            `json:"handle"`
	Commit      bool              `json:"commit"`
	Group       *string           `json:"group"`
	Members     int               `json:"members"`
	Topics      []string          `json:"topics"`
	Start       map[string]int64  `json:"start"`
	Ends        map[string]int64  `json:"ends"`
	TimeoutS    float64           `json:"timeout_s"`
	LingerS     float64           `json:"linger_s"`
	IdleS       float64           `json:"idle_s"`
}

var output sync.Mutex

func emit(value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(raw, '\n'))
}

func run(job *Job) (result any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	switch job.Op {
	case "produce":
		return produce(job)
	case "finish":
		return finish(job)
	case "consume":
		return consume(job)
	}
	return nil, fmt.Errorf("unknown op: %s", job.Op)
}

func main() {
	proxies := map[int]*proxy{}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		job := &Job{}
		if err := json.Unmarshal(line, job); err != nil {
			panic(err)
		}
		switch job.Op {
		case "proxy":
			made, port, err := listenProxy(job.Target)
			if err != nil {
				panic(err)
			}
			proxies[port] = made
			emit(map[string]any{"id": job.ID, "result": port})
		case "counts":
			emit(map[string]any{"id": job.ID, "result": proxies[job.Port].sum(job.Prefix)})
		default:
			go func() {
				result, err := run(job)
				if err != nil {
					emit(map[string]any{"id": job.ID, "failure": err.Error()})
					return
				}
				emit(map[string]any{"id": job.ID, "result": result})
			}()
		}
	}
}
