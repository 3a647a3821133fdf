// The oracle: kube-scheduler's own filters and scores, asked without a cluster.
//
// It reads one request a line from its input and writes one answer a line to its output, both JSON. A request brings a
// cluster, or goes on with the one of the request before, and asks for pods: which nodes take each of them, and which
// plugin refuses it on each of the others, with that plugin's words; and, if wanted, what each of the former is worth to
// it. Nothing is scheduled and nothing is connected to.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/klog/v2"
)

// request is what is asked. Create: pods that somebody creates; nothing else is looked at then. Cluster: the world from
// now on. Placed: pods that join it first. Pods: each is asked for by itself, against the same world. Scores: whether
// nodes that take a pod are to be scored.
type request struct {
	Create  []json.RawMessage `json:"create"`
	Cluster *cluster          `json:"cluster"`
	Placed  []json.RawMessage `json:"placed"`
	Pods    []json.RawMessage `json:"pods"`
	Scores  bool              `json:"scores"`
}

// answer has what became of each pod that was created, or a verdict for each that was asked for; Error says why not.
type answer struct {
	Error    string    `json:"error,omitempty"`
	Created  []created `json:"created,omitempty"`
	Verdicts []verdict `json:"verdicts,omitempty"`
}

func main() {
	klog.SetOutputBySeverity("INFO", os.Stderr)
	klog.LogToStderr(false)
	scheduler, err := newScheduler(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriterSize(os.Stdout, 1<<20)
	for {
		line, err := input.ReadBytes('\n')
		if len(line) == 0 || err != nil {
			return
		}
		encoded, err := json.Marshal(respond(scheduler, line))
		if err != nil {
			encoded, _ = json.Marshal(answer{Error: err.Error()})
		}
		output.Write(encoded)
		output.WriteByte('\n')
		if output.Flush() != nil {
			return
		}
	}
}

func respond(scheduler *scheduler, line []byte) answer {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	if len(asked.Create) > 0 {
		return answer{Created: createPods(asked.Create)}
	}
	verdicts, err := scheduler.answer(&asked)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Verdicts: verdicts}
}
