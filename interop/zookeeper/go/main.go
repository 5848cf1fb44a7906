// Locks with go-zookeeper. See ../README.md.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

type silent struct{}

func (silent) Printf(string, ...interface{}) {}

type peer struct {
	client  *zk.Conn
	locks   sync.Map
	writing sync.Mutex
}

func (p *peer) answer(number, outcome, value string) {
	p.writing.Lock()
	defer p.writing.Unlock()
	fmt.Println(strings.TrimRight(number+" "+outcome+" "+value, " "))
}

func (p *peer) lock(key, path string, wait time.Duration) (string, error) {
	lock := zk.NewLock(p.client, path, zk.WorldACL(zk.PermAll))
	taken := make(chan error, 1)
	go func() { taken <- lock.Lock() }()
	select {
	case err := <-taken:
		if err != nil {
			return "", err
		}
		p.locks.Store(key, lock)
		return "true", nil
	case <-time.After(wait):
		// It cannot be told to stop waiting.
		go func() {
			if <-taken == nil {
				_ = lock.Unlock()
			}
		}()
		return "false", nil
	}
}

func (p *peer) add(path, file string, rounds int) error {
	lock := zk.NewLock(p.client, path, zk.WorldACL(zk.PermAll))
	for i := 0; i < rounds; i++ {
		if err := lock.Lock(); err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		value, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
		if err := os.WriteFile(file, []byte(strconv.Itoa(value+1)), 0o600); err != nil {
			return err
		}
		if err := lock.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) handle(words []string) (string, error) {
	switch {
	case words[0] == "lock" && len(words) == 5:
		wait, err := strconv.Atoi(words[4])
		if err != nil {
			return "", err
		}
		return p.lock(words[1], words[2], time.Duration(wait)*time.Millisecond)
	case words[0] == "unlock" && len(words) == 3:
		lock, known := p.locks.LoadAndDelete(words[1])
		if !known {
			return "", fmt.Errorf("nothing is kept under %q", words[1])
		}
		return "", lock.(*zk.Lock).Unlock()
	case words[0] == "add" && len(words) == 6:
		rounds, err := strconv.Atoi(words[4])
		if err != nil {
			return "", err
		}
		return "", p.add(words[2], words[3], rounds)
	}
	return "", fmt.Errorf("nobody knows %q", words)
}

func main() {
	client, events, err := zk.Connect([]string{os.Args[1]}, 20*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		panic(err)
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	p := &peer{client: client}
	p.answer("0", "ok", "")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		go func() {
			value, err := p.handle(words[1:])
			if err != nil {
				p.answer(words[0], "failed", err.Error())
				return
			}
			p.answer(words[0], "ok", value)
		}()
	}
}
