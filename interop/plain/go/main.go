// Locks with redsync. See ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type order struct {
	Do      string `json:"do"`
	Name    string `json:"name"`
	TTL     int    `json:"ttl_ms"`
	Wait    int    `json:"wait_ms"`
	Counter string `json:"counter"`
	Rounds  int    `json:"rounds"`
	Pause   int    `json:"pause_ms"`
}

type answer struct {
	OK    bool   `json:"ok"`
	Done  int    `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

type peer struct {
	// One for each node; what is counted is on the first.
	nodes   []*redis.Client
	redsync *redsync.Redsync
	mutexes map[string]*redsync.Mutex
}

const retry = 10 * time.Millisecond

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func (p *peer) mutex(name string, ttl int, options ...redsync.Option) *redsync.Mutex {
	options = append(options,
		redsync.WithExpiry(ms(ttl)),
		redsync.WithRetryDelay(retry),
		redsync.WithTries(1<<30),
		// A request may take this part of the lease; the default is too short for a busy machine.
		redsync.WithTimeoutFactor(0.5))
	return p.redsync.NewMutex(name, options...)
}

func (p *peer) acquire(o order) (bool, error) {
	if o.TTL == 0 {
		return false, errors.New("redsync has no locks without a lease")
	}
	mutex := p.mutex(o.Name, o.TTL)
	p.mutexes[o.Name] = mutex
	var err error
	if o.Wait == 0 {
		err = mutex.TryLock()
	} else {
		patience, cancel := context.WithTimeout(context.Background(), ms(o.Wait))
		defer cancel()
		err = mutex.LockContext(patience)
	}
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) {
		return false, nil
	}
	return err == nil, err
}

// Not to hold any more is an answer, all else an error.
func own(ok bool, err error) (bool, error) {
	// With a majority, a node that still has another's value is none of our business: redsync tells it as an error as well.
	if ok {
		return true, nil
	}
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) {
		return false, nil
	}
	return ok, err
}

func (p *peer) load(o order) error {
	ctx := context.Background()
	o.Wait = 120_000
	for range o.Rounds {
		ok, err := p.acquire(o)
		if err != nil || !ok {
			return fmt.Errorf("the lock never came: %v", err)
		}
		text, err := p.nodes[0].Get(ctx, o.Counter).Result()
		if err != nil && err != redis.Nil {
			return err
		}
		value, _ := strconv.Atoi(text)
		time.Sleep(ms(o.Pause))
		if err := p.nodes[0].Set(ctx, o.Counter, value+1, 0).Err(); err != nil {
			return err
		}
		if ok, err := p.mutexes[o.Name].Unlock(); err != nil || !ok {
			return fmt.Errorf("the lock was lost: %v", err)
		}
	}
	return nil
}

// Whether most nodes have the key, of those that answer.
func (p *peer) locked(name string) bool {
	yes := 0
	for _, node := range p.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		n, _ := node.Exists(ctx, name).Result()
		cancel()
		yes += int(n)
	}
	return yes > len(p.nodes)/2
}

func (p *peer) obey(o order) (answer, error) {
	mutex := p.mutexes[o.Name]
	var ok bool
	var err error
	switch o.Do {
	case "acquire":
		ok, err = p.acquire(o)
	case "release":
		ok, err = own(mutex.Unlock())
	case "extend":
		// A mutex extends by the lease it was made with, so this one is made anew, with its value.
		longer := p.mutex(o.Name, o.TTL, redsync.WithValue(mutex.Value()))
		ok, err = own(longer.Extend())
	case "owned":
		ok, err = mutex.Valid()
		if !ok && errors.Is(err, redis.Nil) {
			ok, err = false, nil
		}
		ok, err = own(ok, err)
	case "locked":
		ok = p.locked(o.Name)
	case "load":
		err = p.load(o)
		return answer{OK: err == nil, Done: o.Rounds}, err
	default:
		err = fmt.Errorf("%q is no command", o.Do)
	}
	return answer{OK: ok}, err
}

func main() {
	p := &peer{mutexes: map[string]*redsync.Mutex{}}
	var pools []redsyncredis.Pool
	for _, url := range strings.Split(os.Args[1], ",") {
		options, err := redis.ParseURL(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		node := redis.NewClient(options)
		p.nodes = append(p.nodes, node)
		pools = append(pools, goredis.NewPool(node))
	}
	p.redsync = redsync.New(pools...)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		var a answer
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			a, err = p.obey(o)
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		line, _ := json.Marshal(a)
		fmt.Println(string(line))
	}
}
