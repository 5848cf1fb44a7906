// Locks with redsync. See ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

const lease = 30 * time.Second

type order struct {
	Names []string `json:"names"`
	Start int64    `json:"start_ns"`
	End   int64    `json:"end_ns"`
	Hold  int64    `json:"hold_us"`
	Notes bool     `json:"notes"`
}

type answer struct {
	Pairs  []int64       `json:"pairs"`
	All    int64         `json:"all"`
	Waits  map[int]int64 `json:"waits"`
	Held   int64         `json:"held_ns"`
	Notes  [][3]int64    `json:"notes"`
	Errors int64         `json:"errors"`
	Error  *string       `json:"error"`
}

func (a *answer) failed(err error) {
	a.Errors++
	if a.Error == nil {
		text := err.Error()
		a.Error = &text
	}
}

func now() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}

func repeat(mutex *redsync.Mutex, o order) answer {
	a := answer{Waits: map[int]int64{}}
	var pairs int64
	time.Sleep(time.Duration(o.Start - now()))
	for {
		asked := now()
		if asked >= o.End {
			break
		}
		if err := mutex.Lock(); err != nil {
			a.failed(err)
			continue
		}
		acquired := now()
		if o.Hold > 0 {
			time.Sleep(time.Duration(o.Hold) * time.Microsecond)
		}
		releasing := now()
		if _, err := mutex.Unlock(); err != nil {
			a.failed(err)
		}
		a.Waits[int(math.Log2(float64(max(acquired-asked, 1)))*16)]++
		a.All++
		a.Held += releasing - acquired
		if now() < o.End {
			pairs++
		}
		if o.Notes {
			a.Notes = append(a.Notes, [3]int64{asked, acquired, releasing})
		}
	}
	a.Pairs = []int64{pairs}
	return a
}

func measure(rs *redsync.Redsync, o order) answer {
	parts := make([]answer, len(o.Names))
	var tasks sync.WaitGroup
	for i, name := range o.Names {
		// Its defaults, 50 to 250 ms between tries, but without a limit to them.
		mutex := rs.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt))
		tasks.Go(func() { parts[i] = repeat(mutex, o) })
	}
	tasks.Wait()
	all := answer{Waits: map[int]int64{}, Notes: [][3]int64{}}
	for _, part := range parts {
		all.Pairs = append(all.Pairs, part.Pairs...)
		all.All += part.All
		all.Held += part.Held
		all.Notes = append(all.Notes, part.Notes...)
		all.Errors += part.Errors
		if all.Error == nil {
			all.Error = part.Error
		}
		for bucket, count := range part.Waits {
			all.Waits[bucket] += count
		}
	}
	return all
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version[1:]
		}
	}
	return "unknown"
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var pools []redsyncredis.Pool
	for _, url := range strings.Split(os.Args[1], ",") {
		options, err := redis.ParseURL(url)
		fail(err)
		// As many connections as there are tasks; by itself it has ten for each core.
		options.PoolSize = 100
		client := redis.NewClient(options)
		fail(client.Ping(context.Background()).Err())
		pools = append(pools, goredis.NewPool(client))
	}
	rs := redsync.New(pools...)
	out := json.NewEncoder(os.Stdout)
	ready := fmt.Sprintf("redsync %s, go-redis %s, %s", version("github.com/go-redsync/redsync/v4"),
		version("github.com/redis/go-redis/v9"), runtime.Version())
	fail(out.Encode(map[string]string{"ready": ready}))
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o order
		fail(json.Unmarshal(lines.Bytes(), &o))
		fail(out.Encode(measure(rs, o)))
	}
}
