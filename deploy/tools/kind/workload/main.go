// The tiny program in the containers of tests and the demo. It does what its arguments say and nothing else:
//
//	workload [-sleep 3s] [-exit 0] [-memory 16] [-cpu]
//
// It sleeps (0: until it is told to end), holding so many MiB of memory, burning one core if asked to, and exits with a
// status. SIGTERM ends it at once with status 0, unless -stubborn. -write FILE writes the file first, which tells whether the
// file system may be written.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	sleep := flag.Duration("sleep", 0, "how long to run; 0: until told to end")
	status := flag.Int("exit", 0, "exit status")
	memory := flag.Int("memory", 0, "MiB of memory to hold")
	cpu := flag.Bool("cpu", false, "burn one core")
	stubborn := flag.Bool("stubborn", false, "ignore SIGTERM")
	write := flag.String("write", "", "write this file first")
	flag.Parse()
	if *write != "" {
		if err := os.WriteFile(*write, []byte("written\n"), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	held := make([]byte, *memory<<20)
	for place := 0; place < len(held); place += 4096 {
		held[place] = 1 // a page counts when it was touched
	}
	if *cpu {
		go func() {
			for {
			}
		}()
	}
	told := make(chan os.Signal, 1)
	if *stubborn {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(told, syscall.SIGTERM, os.Interrupt)
	}
	if *sleep == 0 {
		*sleep = 1 << 62 // nobody waits 146 years
	}
	select {
	case <-told:
		os.Exit(0)
	case <-time.After(*sleep):
	}
	fmt.Println(len(held), "bytes held until the end")
	os.Exit(*status)
}
