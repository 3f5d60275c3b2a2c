package databases

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/waterclock/waterclock/queue/outbox"
)

// Required is the environment variable that turns a missing database server from a skipped test into a failed one.
const Required = "WATERCLOCK_REQUIRE_DATABASES"

// A database is one of a test's own.
type database struct {
	dialect     outbox.Dialect
	driver, dsn string
}

// each runs a test on a database of each kind.
func each(t *testing.T, test func(t *testing.T, d database)) {
	for name, start := range map[string]func(t *testing.T) database{"sqlite": newSQLite, "postgres": newPostgres, "mariadb": newMariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// open opens the database, as often as it is called.
func (d database) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newSQLite(t *testing.T) database {
	return database{outbox.SQLite, "sqlite", "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"}
}

func newPostgres(t *testing.T) database {
	dsn := servers.postgres.get(t)
	name := create(t, "pgx", dsn("postgres"))
	return database{outbox.Postgres, "pgx", dsn(name)}
}

func newMariaDB(t *testing.T) database {
	dsn := servers.mariadb.get(t)
	name := create(t, "mysql", dsn(""))
	return database{outbox.MySQL, "mysql", dsn(name)}
}

// create creates a database of a random name.
func create(t *testing.T, driver, dsn string) (name string) {
	db := database{driver: driver, dsn: dsn}.open(t)
	name = fmt.Sprintf("test_%d", rand.Uint32())
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return name
}

// servers are those of this package's tests: each starts when it is asked for first, and TestMain ends it.
var servers = struct{ postgres, mariadb *server }{&server{start: startPostgres}, &server{start: startMariaDB}}

// A server is a program with a directory of its own.
type server struct {
	start func(s *server) error

	once sync.Once
	dsn  func(database string) string // nil where the program is not installed
	err  error
	dir  string
	cmd  *exec.Cmd
	life io.Closer // the server ends when this is closed
	out  strings.Builder
}

// get returns the names of the server's databases, for its driver.
func (s *server) get(t *testing.T) func(database string) string {
	t.Helper()
	s.once.Do(func() { s.err = s.start(s) })
	switch {
	case s.err != nil:
		t.Fatalf("%v\n%s", s.err, s.out.String())
	case s.dsn == nil && os.Getenv(Required) != "":
		t.Fatalf("the server is not installed, and %s is set", Required)
	case s.dsn == nil:
		t.Skip("the server is not installed")
	}
	return s.dsn
}

// stop ends the server, and removes its data.
func (s *server) stop() {
	if s.cmd != nil {
		s.life.Close()
		s.cmd.Wait()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// program finds a program in PATH, or where distributions hide it.
func program(name string, places ...string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, place := range places {
		if found, _ := filepath.Glob(filepath.Join(place, name)); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

// as returns a command that runs as another user if the test runs as root, as these servers refuse to.
func (s *server) as(name string, path string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	if os.Getuid() != 0 {
		return cmd, nil
	}
	who, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd, os.Chown(s.dir, uid, gid)
}

// untilTheEnd is a script that runs a server until its standard input ends: so the server ends with the test, however that ends.
const untilTheEnd = `"$@" & pid=$!; cat; kill -QUIT $pid; wait $pid`

// runs runs a command to its end, and then another until it answers.
func (s *server) runs(prepare, serve *exec.Cmd, driver, dsn string) (err error) {
	if err := prepare.Run(); err != nil {
		return fmt.Errorf("%s: %w", prepare.Path, err)
	}
	if s.life, err = serve.StdinPipe(); err != nil {
		return err
	}
	if err := serve.Start(); err != nil {
		return err
	}
	s.cmd = serve
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(20 * time.Millisecond) {
		err := db.PingContext(context.Background())
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func startPostgres(s *server) (err error) {
	const places = "/usr/lib/postgresql/*/bin"
	initdb, postgres := program("initdb", places), program("postgres", places)
	if initdb == "" || postgres == "" {
		return nil
	}
	if s.dir, err = os.MkdirTemp("", "waterclock-postgres-"); err != nil {
		return err
	}
	port := freePort()
	prepare, err := s.as("postgres", initdb, "-D", s.dir, "-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	if err != nil {
		return err
	}
	serve, err := s.as("postgres", "/bin/sh", "-c", untilTheEnd, "sh", postgres, "-D", s.dir, "-h", "127.0.0.1", "-p", port, "-k", "", "-c", "fsync=off", "-c", "max_connections=50")
	if err != nil {
		return err
	}
	s.dsn = func(database string) string {
		return fmt.Sprintf("postgres://postgres@127.0.0.1:%s/%s?sslmode=disable", port, database)
	}
	return s.runs(prepare, serve, "pgx", s.dsn("postgres"))
}

func startMariaDB(s *server) (err error) {
	install, mariadbd := program("mariadb-install-db"), program("mariadbd", "/usr/sbin", "/usr/libexec")
	if install == "" || mariadbd == "" {
		return nil
	}
	if s.dir, err = os.MkdirTemp("", "waterclock-mariadb-"); err != nil {
		return err
	}
	port := freePort()
	prepare, err := s.as("mysql", install, "--no-defaults", "--datadir="+s.dir, "--auth-root-authentication-method=normal", "--skip-test-db")
	if err != nil {
		return err
	}
	serve, err := s.as("mysql", "/bin/sh", "-c", untilTheEnd, "sh", mariadbd, "--no-defaults", "--datadir="+s.dir, "--port="+port, "--bind-address=127.0.0.1", "--socket="+s.dir+"/socket",
		"--pid-file="+s.dir+"/pid", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=16M")
	if err != nil {
		return err
	}
	s.dsn = func(database string) string { return fmt.Sprintf("root@tcp(127.0.0.1:%s)/%s", port, database) }
	return s.runs(prepare, serve, "mysql", s.dsn(""))
}

// freePort returns a port on which nobody listens, below those that the system gives to outgoing connections.
func freePort() string {
	for {
		port := strconv.Itoa(22_000 + rand.IntN(8_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
}
