package main

import (
	"context"
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
)

// created is a pod as the API server would store it, or why it would refuse it.
type created struct {
	Error string  `json:"error,omitempty"`
	Pod   *v1.Pod `json:"pod,omitempty"`
}

// createPods does to pods what the API server does when somebody creates them: defaults, selectors from matchLabelKeys,
// validation. The status, which a create request cannot set, is kept.
func createPods(texts []json.RawMessage) []created {
	results := make([]created, 0, len(texts))
	for _, text := range texts {
		pod, err := createPod(text)
		if err != nil {
			results = append(results, created{Error: err.Error()})
		} else {
			results = append(results, created{Pod: pod})
		}
	}
	return results
}

func createPod(text json.RawMessage) (*v1.Pod, error) {
	pod, internal := &v1.Pod{}, &core.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		return nil, err
	}
	status := pod.Status
	legacyscheme.Scheme.Default(pod)
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return nil, err
	}
	podregistry.Strategy.PrepareForCreate(context.Background(), internal)
	if faults := podregistry.Strategy.Validate(context.Background(), internal); len(faults) > 0 {
		return nil, faults.ToAggregate()
	}
	stored := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(internal, stored, nil); err != nil {
		return nil, err
	}
	stored.Status = status
	return stored, nil
}
