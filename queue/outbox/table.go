package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Dialect is the SQL of a database.
type Dialect string

const (
	Postgres Dialect = "postgres" // 13 or later
	MySQL    Dialect = "mysql"    // 8.0.13 or later, MariaDB 10.5 or later
	SQLite   Dialect = "sqlite"   // 3.37 or later
)

// A Table is where jobs wait for a relay. It is a value: programs that name the same table share it.
type Table struct {
	// Dialect is required.
	Dialect Dialect

	// Name may have a schema before it, as in "app.outbox". Defaults to "waterclock_outbox". Relays keep their leases in a second
	// table, whose name has "_relay" at its end.
	Name string
}

// An Execer runs a statement: a *sql.Tx, *sql.Conn or *sql.DB, or what wraps one of them.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Schema returns the statements that create the tables, for a migration. Run twice they change nothing.
func (t Table) Schema() (string, error) {
	statements, err := t.statements()
	return strings.Join(statements, ";\n\n") + ";\n", err
}

// Create creates the tables if they are not there.
func (t Table) Create(ctx context.Context, db Execer) error {
	statements, err := t.statements()
	if err != nil {
		return err
	}
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("outbox: creating table %s: %w", t.name(), err)
		}
	}
	return nil
}

func (t Table) statements() ([]string, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	return strings.Split(t.sql(strings.TrimSpace(t.dialect().schema)), ";\n\n"), nil
}

// maxTable is the most bytes of a part of a table's name: the names of the index and of the second table are longer by at most 6,
// and Postgres cuts names off after 63.
const maxTable = 57

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]{0,` + strconv.Itoa(maxTable-1) + `}$`)

// check returns what is wrong with the table, or nil.
func (t Table) check() error {
	if t.dialect() == nil {
		return fmt.Errorf("outbox: dialect %q; want %q, %q or %q", t.Dialect, Postgres, MySQL, SQLite)
	}
	if !tableName.MatchString(t.name()) {
		return fmt.Errorf("outbox: table %q; want letters, digits and underscores, at most %d, and perhaps a schema, as in app.outbox", t.Name, maxTable)
	}
	return nil
}

func (t Table) name() string { return cmp.Or(t.Name, "waterclock_outbox") }

// sql completes a statement: {table} is the table's name, {base} that without a schema, {now} the database's time in µs since 1970,
// {size} the bytes of a row, and each ? a parameter.
func (t Table) sql(statement string) string {
	d, name := t.dialect(), t.name()
	statement = strings.NewReplacer("{table}", name, "{base}", name[strings.LastIndexByte(name, '.')+1:], "{now}", d.now, "{size}", d.size).Replace(statement)
	if !d.numbered {
		return statement
	}
	var b strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// in returns "(?, ?, …)" and the numbers as its parameters, the last one repeated until they are a power of two: so there are few
// different statements, which drivers keep prepared.
func in(numbers []int64) (list string, args []any) {
	for _, n := range numbers {
		args = append(args, n)
	}
	for n := len(args); n&(n-1) != 0; n = len(args) {
		args = append(args, args[n-1])
	}
	return "(?" + strings.Repeat(", ?", len(args)-1) + ")", args
}
