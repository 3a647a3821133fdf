// The exam: Kubernetes' own end-to-end specs of SIG Scheduling as a program of their own, without those of all others.
//
// It takes the flags of Kubernetes' e2e.test, of its framework and of Ginkgo, and runs the specs one after the other on
// the cluster of --kubeconfig. What became of each spec goes to the file of --outcomes at once, a line of JSON a spec, so
// that a run that is ended early has said what it knows. The suite of e2e.test asks for more before it starts, such as pods of kube-system, which
// a control plane with fake nodes has not.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	e2enode "k8s.io/kubernetes/test/e2e/framework/node"

	// what is done before and after each spec: wait for all nodes, say what is there when a spec fails
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"

	// the specs
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)

const patience = 5 * time.Minute

// outcome is what Ginkgo tells a test of Go: that the suite failed. Why stands in its report.
type outcome struct{ failed bool }

func (outcome *outcome) Fail() { outcome.failed = true }

var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err)
	framework.ExpectNoError(e2enode.WaitForAllNodesSchedulable(ctx, client, patience))
	nodes, err := e2enode.GetReadySchedulableNodes(ctx, client)
	framework.ExpectNoError(err)
	framework.TestContext.CloudConfig.NumNodes = len(nodes.Items)
	framework.TestContext.IPFamily = "ipv4"
})

// spec is a line of the file of outcomes. State: Ginkgo's word. Seconds: how long it took.
type spec struct {
	Texts   []string `json:"texts"`
	State   string   `json:"state"`
	Seconds float64  `json:"seconds"`
	Failure string   `json:"failure"`
}

var outcomes = flag.String("outcomes", "", "The file to which what became of each spec is added.")

// record adds what became of a spec to the file.
func record(report ginkgo.SpecReport) {
	texts := append(append([]string{}, report.ContainerHierarchyTexts...), report.LeafNodeText)
	line, err := json.Marshal(spec{texts, report.State.String(), report.RunTime.Seconds(), report.Failure.Message})
	framework.ExpectNoError(err)
	file, err := os.OpenFile(*outcomes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	framework.ExpectNoError(err)
	_, err = file.Write(append(line, '\n'))
	framework.ExpectNoError(err)
	framework.ExpectNoError(file.Close())
}

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	// Not before: reading the flags ends with a preview, in which every spec passes without being run. The preview takes
	// what was registered for each spec until then, and leaves none of it to the run itself.
	if *outcomes != "" {
		ginkgo.ReportAfterEach(record)
	}
	logs.InitLogs()
	klog.EnableContextualLogging(true)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	result := &outcome{}
	passed := ginkgo.RunSpecs(result, "SIG Scheduling", suite, reporter)
	logs.FlushLogs()
	if !passed || result.failed {
		os.Exit(1)
	}
}
