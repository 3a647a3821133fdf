package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// cluster is the world in which pods are asked for, as the API server lists it.
type cluster struct {
	Nodes      []*v1.Node        `json:"nodes"`
	Pods       []json.RawMessage `json:"pods"`
	Namespaces []*v1.Namespace   `json:"namespaces"`

	Claims         []*v1.PersistentVolumeClaim   `json:"persistentvolumeclaims"`
	Volumes        []*v1.PersistentVolume        `json:"persistentvolumes"`
	StorageClasses []*storagev1.StorageClass     `json:"storageclasses"`
	CSINodes       []*storagev1.CSINode          `json:"csinodes"`
	CSIDrivers     []*storagev1.CSIDriver        `json:"csidrivers"`
	Attachments    []*storagev1.VolumeAttachment `json:"volumeattachments"`

	Capacities []*storagev1.CSIStorageCapacity `json:"csistoragecapacities"`
}

// verdict is the answer for one pod. Refused: by the names of the nodes that do not take it. Scores: by the names of the
// others, what each plugin gives them, normalised and times its weight.
type verdict struct {
	Feasible []string                    `json:"feasible"`
	Refused  map[string]refusal          `json:"refused"`
	Scores   map[string]map[string]int64 `json:"scores,omitempty"`
}

// refusal is the first plugin that refuses a pod on a node, and its reasons. Besides: where that is one about room, the
// first plugin that would refuse the pod if there were room. What volumes there are comes before how many a node takes.
type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	Besides string   `json:"besides,omitempty"`
}

// roomless is the name of a profile without the filters about room on a node, otherwise kube-scheduler's default one;
// limitless one that does not count volumes either.
const (
	roomless  = "roomless"
	limitless = "limitless"
)

var (
	aboutRoom   = []string{names.NodePorts, names.NodeResourcesFit}
	aboutLimits = append([]string{names.NodeVolumeLimits}, aboutRoom...)
	aboutReach  = []string{names.VolumeBinding, names.VolumeZone}
)

// scheduler is a kube-scheduler with its default configuration that never runs: its filters look at a snapshot that is put in
// place for each request, and at stores of objects that are filled by hand.
type scheduler struct {
	framework framework.Framework
	roomless  framework.Framework
	limitless framework.Framework
	queue     queue.SchedulingQueue
	informers informers.SharedInformerFactory
	snapshot  *internalcache.Snapshot
	nodes     []*v1.Node
	known     map[string]bool
	placed    []*v1.Pod
	nominated []*v1.Pod
}

func newScheduler(ctx context.Context) (*scheduler, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		return nil, err
	}
	snapshot := internalcache.NewEmptySnapshot()
	factory := kubescheduler.NewInformerFactory(client, 0, nil)
	recorders := profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}))
	profiles, err := makeProfiles()
	if err != nil {
		return nil, err
	}
	made, err := kubescheduler.New(ctx, client, factory, nil, recorders,
		kubescheduler.WithNodeInfoSnapshot(snapshot), kubescheduler.WithProfiles(profiles...))
	if err != nil {
		return nil, err
	}
	return &scheduler{
		framework: made.Profiles[v1.DefaultSchedulerName],
		roomless:  made.Profiles[roomless],
		limitless: made.Profiles[limitless],
		queue:     made.SchedulingQueue,
		informers: factory,
		snapshot:  snapshot,
	}, nil
}

func makeProfiles() ([]config.KubeSchedulerProfile, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profiles := []config.KubeSchedulerProfile{defaults.Profiles[0]}
	for scheduler, without := range map[string][]string{roomless: aboutRoom, limitless: aboutLimits} {
		other := defaults.Profiles[0].DeepCopy()
		other.SchedulerName = scheduler
		for _, name := range without {
			other.Plugins.Filter.Disabled = append(other.Plugins.Filter.Disabled, config.Plugin{Name: name})
		}
		profiles = append(profiles, *other)
	}
	return profiles, nil
}

func (s *scheduler) answer(asked *request) ([]verdict, error) {
	ctx := context.Background()
	if asked.Cluster != nil {
		if err := s.take(ctx, asked.Cluster); err != nil {
			return nil, err
		}
	}
	placed, err := readPods(asked.Placed)
	if err != nil {
		return nil, err
	}
	s.place(placed)
	pods, err := readPods(asked.Pods)
	if err != nil {
		return nil, err
	}
	*s.snapshot = *internalcache.NewSnapshot(s.placed, s.nodes)
	verdicts := make([]verdict, 0, len(pods))
	for _, pod := range pods {
		found, err := s.ask(ctx, pod)
		if err == nil && asked.Scores {
			found.Scores, err = s.score(ctx, pod, found.Feasible)
		}
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		verdicts = append(verdicts, found)
	}
	return verdicts, nil
}

// take replaces the world.
func (s *scheduler) take(ctx context.Context, world *cluster) error {
	s.nodes, s.known, s.placed = nil, map[string]bool{}, nil
	for _, node := range world.Nodes {
		corev1.SetObjectDefaults_Node(node)
		s.nodes, s.known[node.Name] = append(s.nodes, node), true
	}
	pods, err := readPods(world.Pods)
	if err != nil {
		return err
	}
	core := s.informers.Core().V1()
	if err := fill(core.Nodes().Informer(), s.nodes); err != nil {
		return err
	}
	if err := fill(core.Namespaces().Informer(), world.Namespaces); err != nil {
		return err
	}
	if err := fill(core.Pods().Informer(), pods); err != nil {
		return err
	}
	if err := s.takeVolumes(world); err != nil {
		return err
	}
	s.place(pods)
	for _, pod := range s.nominated {
		s.queue.Delete(klog.FromContext(ctx), pod)
	}
	s.nominated = nil
	for _, pod := range pods {
		if pod.Spec.NodeName != "" || pod.Status.NominatedNodeName == "" {
			continue
		}
		s.queue.Add(ctx, pod) // what a nominated pod needs is looked up in the queue
		s.nominated = append(s.nominated, pod)
	}
	return nil
}

// takeVolumes replaces what there is of volumes; all plugins look at the informers' stores.
func (s *scheduler) takeVolumes(world *cluster) error {
	core, storage := s.informers.Core().V1(), s.informers.Storage().V1()
	return errors.Join(
		fill(core.PersistentVolumeClaims().Informer(), world.Claims),
		fill(core.PersistentVolumes().Informer(), world.Volumes),
		fill(storage.StorageClasses().Informer(), world.StorageClasses),
		fill(storage.CSINodes().Informer(), world.CSINodes),
		fill(storage.CSIDrivers().Informer(), world.CSIDrivers),
		fill(storage.VolumeAttachments().Informer(), world.Attachments),
		fill(storage.CSIStorageCapacities().Informer(), world.Capacities),
	)
}

// place lets pods hold what they hold. As in kube-scheduler's own cache, those that ended hold nothing, and those on a
// node that is not there are not seen.
func (s *scheduler) place(pods []*v1.Pod) {
	for _, pod := range pods {
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if s.known[pod.Spec.NodeName] && !ended {
			s.placed = append(s.placed, pod)
		}
	}
}

// ask says where a pod may be placed.
func (s *scheduler) ask(ctx context.Context, pod *v1.Pod) (verdict, error) {
	found := verdict{Feasible: []string{}, Refused: map[string]refusal{}}
	refused, err := s.filter(ctx, s.framework, pod)
	if err != nil {
		return found, err
	}
	besides, err := s.filter(ctx, s.roomless, pod)
	if err != nil {
		return found, err
	}
	reach, err := s.filter(ctx, s.limitless, pod)
	if err != nil {
		return found, err
	}
	for _, node := range s.nodes {
		refusal, isRefused := refused[node.Name]
		if !isRefused {
			found.Feasible = append(found.Feasible, node.Name)
			continue
		}
		if slices.Contains(aboutRoom, refusal.Plugin) {
			refusal.Besides = besides[node.Name].Plugin
		}
		last := refusal.Besides
		if last == "" {
			last = refusal.Plugin
		}
		if plugin := reach[node.Name].Plugin; last == names.NodeVolumeLimits && slices.Contains(aboutReach, plugin) {
			refusal.Besides = plugin
		}
		found.Refused[node.Name] = refusal
	}
	return found, nil
}

// filter runs the filters of a profile on every node, in the way in which kube-scheduler does it for one pod.
func (s *scheduler) filter(ctx context.Context, profile framework.Framework, pod *v1.Pod) (map[string]refusal, error) {
	nodes, err := s.snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	state, refused := framework.NewCycleState(), map[string]refusal{}
	chosen, status, plugins := profile.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() && !status.IsRejected() {
		return nil, status.AsError()
	}
	for _, node := range nodes {
		name := node.Node().Name
		switch {
		case !status.IsSuccess():
			refused[name] = refusal{Plugin: status.Plugin(), Reasons: status.Reasons()}
		case !chosen.AllNodes() && !chosen.NodeNames.Has(name):
			refused[name] = refusal{Plugin: sets.List(plugins)[0]}
		default:
			status := profile.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
			if status.Code() == fwk.Error {
				return nil, fmt.Errorf("node %s: %w", name, status.AsError())
			}
			if !status.IsSuccess() {
				refused[name] = refusal{Plugin: status.Plugin(), Reasons: status.Reasons()}
			}
		}
	}
	return refused, nil
}

// score runs the default profile's scores for one pod on the nodes that take it.
func (s *scheduler) score(ctx context.Context, pod *v1.Pod, feasible []string) (map[string]map[string]int64, error) {
	if len(feasible) == 0 {
		return nil, nil
	}
	nodes := make([]fwk.NodeInfo, 0, len(feasible))
	for _, name := range feasible {
		node, err := s.snapshot.NodeInfos().Get(name)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	state := framework.NewCycleState()
	if _, status, _ := s.framework.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		return nil, status.AsError()
	}
	if status := s.framework.RunPreScorePlugins(ctx, state, pod, nodes); !status.IsSuccess() {
		return nil, status.AsError()
	}
	scored, status := s.framework.RunScorePlugins(ctx, state, pod, nodes)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	scores := map[string]map[string]int64{}
	for _, node := range scored {
		scores[node.Name] = map[string]int64{}
		for _, plugin := range node.Scores {
			scores[node.Name][plugin.Name] = plugin.Score
		}
	}
	return scores, nil
}

func readPods(texts []json.RawMessage) ([]*v1.Pod, error) {
	pods := make([]*v1.Pod, 0, len(texts))
	for _, text := range texts {
		pod := &v1.Pod{}
		if err := json.Unmarshal(text, pod); err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// fill replaces what a store has.
func fill[Object any](informer cache.SharedIndexInformer, objects []Object) error {
	items := make([]any, 0, len(objects))
	for _, object := range objects {
		items = append(items, object)
	}
	return informer.GetIndexer().Replace(items, "")
}
