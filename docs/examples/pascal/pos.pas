{ A mini POS for orderbridge. Free Pascal 3.2 or Lazarus, and SQLite's library.

    fpc pos.pas
    ./pos DATABASE [--orders N]     the till, until it is stopped or has taken N orders over
    ./pos DATABASE VERB ARGUMENTS   an action of a person, while the till runs

    accept KEY MINUTES   cancel KEY REASON_ID   on_the_way KEY   complete KEY   withdraw KEY (the waiting action)
    open RESTAURANT_ID   close RESTAURANT_ID   food_off FOOD_ID RESTAURANT_ID   food_on FOOD_ID RESTAURANT_ID
    ticket KEY (all tickets of the order)   collect KEY (the amount to collect)

  The till takes orders over and accepts them. An order with a food that was switched off is cancelled. A scheduled
  order, or one with a `problem`, waits for a person. The till may be killed at any moment, and then continues: a
  ticket that may already be printed is printed again after a minute, with PERHAPS A SECOND COPY on it. Several tills
  may run on one file, also under one name; what one leaves for a minute, another one prints.

  In Delphi the same statements go through FireDAC; set LockingMode=Normal and BusyTimeout=5000 in the connection's
  parameters, for FireDAC opens a SQLite file for itself alone by default. }
program pos;

{$mode objfpc}{$H+}
{$modeswitch advancedrecords}
{$codepage utf8}

uses
  {$ifdef unix}cwstring,{$endif} SysUtils, StrUtils, Classes, DB, SQLDB, SQLite3Conn, SQLite3Dyn;

const
  LookMs = 500;
  ReadyInMinutes = '25';
  OutOfStock = '1'; { delivery_cancel_reasons }

  Till = 'K1'; { each till has its own name }
  { The two tables of the POS guide. till_papers: the kitchen's tickets; a paper waits, is begun, or is out.
    till_asked: our actions whose results were not shown to a person yet. }
  Tables: array[1..2] of string = (
    'CREATE TABLE IF NOT EXISTS till_papers (' +
    ' payment_key TEXT NOT NULL, revision INTEGER NOT NULL, kind TEXT NOT NULL, till TEXT NOT NULL,' +
    ' ticket TEXT NOT NULL, paper TEXT NOT NULL DEFAULT ''waits'', tries INTEGER NOT NULL DEFAULT 0,' +
    ' since INTEGER NOT NULL DEFAULT (strftime(''%s'', ''now'')), PRIMARY KEY (payment_key, revision, kind))',
    'CREATE TABLE IF NOT EXISTS till_asked (request_id TEXT PRIMARY KEY, till TEXT NOT NULL)');
  Ours = 'pos_reference LIKE ''' + Till + '-%''';
  Changed = ' FROM delivery_changed_orders WHERE ' + Ours + { and those that another till left a minute ago }
    ' OR (strftime(''%s'', ''now'') - strftime(''%s'', changed_utc) > 60' +
    ' AND payment_key IN (SELECT payment_key FROM till_papers))';
  { Papers that another till or a printer left a minute ago are printed, too; of an ended order, only STOP. }
  Waiting =
    'SELECT papers.rowid AS id, paper, tries, CASE WHEN tries > 0 THEN ''PERHAPS A SECOND COPY '' ELSE '''' END' +
    ' || CASE WHEN till <> ''' + Till + ''' THEN ''from '' || till || '' '' ELSE '''' END || ticket AS ticket' +
    ' FROM till_papers AS papers JOIN delivery_orders AS orders ON orders.payment_key = papers.payment_key' +
    ' WHERE (kind = ''STOP'' OR ended_utc IS NULL) AND ((paper = ''waits'' AND till = ''' + Till + ''')' +
    ' OR (paper <> ''out'' AND since < strftime(''%s'', ''now'') - 60)) ORDER BY papers.rowid';
  { is_later: more than an hour ahead, by this computer's time zone. NULL: not scheduled, or an unreadable time.
    An empty text before an expression makes a text of it: SQLDB takes the type of the first row for that of all. }
  Orders =
    'SELECT *, '''' || (datetime(scheduled_for) > datetime(''now'', ''localtime'', ''+60 minutes'')) AS is_later,' +
    ' CASE WHEN amount_due IS NULL THEN ''ask'' ELSE printf(''%.2f'', amount_due) END AS collect';
  { Whether the last switch of one of the order's foods was off. }
  SoldOut =
    'SELECT 1 FROM delivery_order_items AS item WHERE payment_key = :k AND ''deactivate_food'' = (' +
    ' SELECT action FROM delivery_actions WHERE food_id = item.food_id AND state IN (''pending'', ''sending'', ''done'')' +
    ' AND restaurant_id IN (SELECT id FROM delivery_restaurants WHERE account = :a) ORDER BY id DESC LIMIT 1)';
  Lamps =
    'SELECT lamp, account, sentence, remedy FROM delivery_lamp UNION ALL' +
    ' SELECT ''red'', ''?'', ''orderbridge has not run yet'', NULL WHERE NOT EXISTS (SELECT 1 FROM delivery_lamp)';
  { The verb, the action, and the columns for its arguments. }
  Verbs: array[1..8, 1..4] of string = (
    ('accept', 'accept', 'payment_key', 'preparing_time'),
    ('cancel', 'cancel', 'payment_key', 'reason_id'),
    ('on_the_way', 'on_the_way', 'payment_key', ''),
    ('complete', 'complete', 'payment_key', ''),
    ('open', 'open_restaurant', 'restaurant_id', ''),
    ('close', 'close_restaurant', 'restaurant_id', ''),
    ('food_off', 'deactivate_food', 'food_id', 'restaurant_id'),
    ('food_on', 'activate_food', 'food_id', 'restaurant_id'));

type
  { A row: the values of its columns by name, a NULL as ''. }
  TRow = record
    Names, Values: array of string;
    function Text(const Name: string): string;
  end;
  TRows = array of TRow;

var
  Connection: TSQLite3Connection;
  Transaction: TSQLTransaction;
  LampsShown: TStringList;

{ ---- the database ---- }

function TRow.Text(const Name: string): string;
var
  I: Integer;
begin
  Result := '';
  for I := 0 to High(Names) do
    if Names[I] = Name then
      Exit(Values[I]);
end;

function Query(const Sql: string; const Values: array of string): TSQLQuery;
var
  I: Integer;
begin
  Result := TSQLQuery.Create(nil);
  Result.DataBase := Connection;
  Result.Transaction := Transaction;
  Result.SQL.Text := Sql;
  Result.PacketRecords := -1; { read all rows at once }
  for I := 0 to High(Values) do
    Result.Params[I].AsString := Values[I];
end;

function RowsOnce(const Sql: string; const Values: array of string): TRows;
var
  Found: TSQLQuery;
  I: Integer;
begin
  Result := nil;
  Found := Query(Sql, Values);
  try
    Found.Open;
    while not Found.EOF do
    begin
      SetLength(Result, Length(Result) + 1);
      SetLength(Result[High(Result)].Names, Found.FieldCount);
      SetLength(Result[High(Result)].Values, Found.FieldCount);
      for I := 0 to Found.FieldCount - 1 do
      begin
        Result[High(Result)].Names[I] := Found.Fields[I].FieldName;
        Result[High(Result)].Values[I] := Found.Fields[I].AsString;
      end;
      Found.Next;
    end;
  finally
    Found.Free;
  end;
end;

function RunOnce(const Sql: string; const Values: array of string): Integer;
var
  Statement: TSQLQuery;
begin
  Statement := Query(Sql, Values);
  try
    Statement.ExecSQL;
    Result := Statement.RowsAffected;
  finally
    Statement.Free;
  end;
end;

{ SQLDB does not notice that another program has made a table meanwhile: such a statement is prepared again. }
procedure GoOnAfter(Error: EDatabaseError);
begin
  if not AnsiContainsStr(Error.Message, 'schema has changed') then
    raise EDatabaseError.Create(Error.Message);
end;

{ All rows, so that no read is open during a write. }
function Rows(const Sql: string; const Values: array of string): TRows;
begin
  try
    Result := RowsOnce(Sql, Values);
  except
    on Error: EDatabaseError do
    begin
      GoOnAfter(Error);
      Result := RowsOnce(Sql, Values);
    end;
  end;
end;

{ The number of changed rows. }
function Run(const Sql: string; const Values: array of string): Integer;
begin
  try
    Result := RunOnce(Sql, Values);
  except
    on Error: EDatabaseError do
    begin
      GoOnAfter(Error);
      Result := RunOnce(Sql, Values);
    end;
  end;
end;

{ A deferred BEGIN fails at once beside another writer, whatever the timeout. }
procedure BeginNow;
begin
  Connection.ExecuteDirect('BEGIN IMMEDIATE');
end;

procedure Commit;
begin
  Connection.ExecuteDirect('COMMIT');
end;

procedure Rollback;
begin
  Connection.ExecuteDirect('ROLLBACK');
end;

procedure Say(const Words: string);
begin
  WriteLn(Words);
  Flush(Output);
end;

{ ---- asking ---- }

{ Insert a row into the outbox, and note that we wait for its result. }
procedure Ask(const Request, Action, Column, Value, Column2, Value2: string);
begin
  if Column2 = '' then
    Run('INSERT INTO delivery_actions (request_id, action, created_by, ' + Column + ')' +
      ' VALUES (:r, :a, ''mini POS'', :v)', [Request, Action, Value])
  else
    Run('INSERT INTO delivery_actions (request_id, action, created_by, ' + Column + ', ' + Column2 + ')' +
      ' VALUES (:r, :a, ''mini POS'', :v, :w)', [Request, Action, Value, Value2]);
  Run('INSERT INTO till_asked (request_id, till) VALUES (:r, :t)', [Request, Till]);
end;

{ Insert a row unless the action was requested before: only a person tries again. }
procedure AskOnce(const Action, Key, Argument, Value: string);
begin
  if Length(Rows('SELECT 1 FROM delivery_actions WHERE request_id = :r', [Action + '-' + Key])) = 0 then
    Ask(Action + '-' + Key, Action, 'payment_key', Key, Argument, Value);
end;

{ The problem `total_mismatch` alone does not need a person before the accept. }
function WaitsForPerson(const Order: TRow): Boolean;
var
  Code: string;
begin
  for Code in Order.Text('problem').Split([',']) do
    if (Code <> '') and not StartsStr('total_mismatch', Code) then
      Exit(True);
  Result := (Order.Text('scheduled_for') <> '') and (Order.Text('is_later') <> '0');
end;

procedure Accept(const Order: TRow);
begin
  if (Order.Text('status') = 'RECEIVED') and not WaitsForPerson(Order) then
    AskOnce('accept', Order.Text('payment_key'), 'preparing_time', ReadyInMinutes);
end;

{ ---- the kitchen ---- }

{ NULL: the platform sent no value. }
function Said(const Value: string): string;
begin
  Result := IfThen(Value = '', '?', Value);
end;

function IfAny(const Words, Value: string): string;
begin
  Result := IfThen(Value = '', '', LineEnding + Words + Value);
end;

{ The amount to collect, the items to cook, and remarks. }
function TicketText(const Order: TRow; const Kind, Reference: string): string;
var
  Key: string;
  Item, Option: TRow;
begin
  Key := Order.Text('payment_key');
  Result := Kind + ' ' + Reference + LineEnding +
    '  collect: ' + Order.Text('collect') + ', ' + Said(Order.Text('payment_method'));
  if Kind = 'SOLD OUT' then
    Result := Result + LineEnding + '  do not cook it: we cancel it';
  Result := Result +
    IfAny(IfThen(Order.Text('is_later') = '1', '  not now: for ', '  for '), Order.Text('scheduled_for')) +
    IfAny('  look at it in the platform''s panel: ', Order.Text('problem'));
  if (Order.Text('status') = 'RECEIVED') and WaitsForPerson(Order) then
    Result := Result + LineEnding + '  a person must accept it: ' + Key;
  Result := Result + IfAny('  note: ', Order.Text('note'));
  for Item in Rows('SELECT * FROM delivery_order_items WHERE payment_key = :k ORDER BY line_no', [Key]) do
  begin
    Result := Result + LineEnding + '  ' + Said(Item.Text('quantity')) + ' x ' + Said(Item.Text('name'));
    for Option in Rows('SELECT * FROM delivery_order_item_options WHERE payment_key = :k AND line_no = :l' +
      ' ORDER BY option_no', [Key, Item.Text('line_no')]) do
      Result := Result + LineEnding + '    ' + Said(Option.Text('operation')) + ' ' +
        Said(Option.Text('group_name')) + ': ' + Said(Option.Text('option_name'));
    Result := Result + IfAny('    note: ', Item.Text('note'));
  end;
end;

procedure Remember(const Order: TRow; const Kind, Ticket: string);
begin
  Run('INSERT OR IGNORE INTO till_papers (payment_key, revision, kind, till, ticket) VALUES (:k, :r, :i, :n, :t)',
    [Order.Text('payment_key'), Order.Text('revision'), Kind, Till, Ticket]);
end;

{ After the COMMIT. If no row changed, another loop or till has begun it, or the order has ended. }
procedure PrintWaiting;
var
  Row: TRow;
begin
  for Row in Rows(Waiting, []) do
    if Run('UPDATE till_papers SET paper = ''begun'', tries = tries + 1, since = strftime(''%s'', ''now'')' +
      ' WHERE rowid = :i AND paper = :p AND tries = :t', [Row.Text('id'), Row.Text('paper'), Row.Text('tries')]) > 0 then
    begin
      Say(Row.Text('ticket')); { print to your printer here }
      Run('UPDATE till_papers SET paper = ''out'' WHERE rowid = :i', [Row.Text('id')]);
    end;
end;

{ ---- the till ---- }

{ Whether the order is ours now. Our number, the ticket and the answer are written together or not at all. }
function TakeOver(const Order: TRow): Boolean;
var
  Key, Reference, Kind, Ticket: string;
begin
  Key := Order.Text('payment_key');
  Reference := Till + '-' + Order.Text('order_number');
  Kind := IfThen(Order.Text('is_later') = '1', 'LATER', 'NEW');
  if (Order.Text('status') = 'RECEIVED') and (Length(Rows(SoldOut, [Key, Order.Text('account')])) > 0) then
    Kind := 'SOLD OUT';
  Ticket := TicketText(Order, Kind, Reference);
  BeginNow;
  try
    { No row changed: another till has it, or it was cancelled after we read it. }
    Result := Run('UPDATE delivery_orders SET pos_revision = :r, pos_reference = :p' +
      ' WHERE payment_key = :k AND pos_revision = 0 AND ended_utc IS NULL', [Order.Text('revision'), Reference, Key]) > 0;
    if Result then
    begin
      Remember(Order, Kind, Ticket);
      if Kind = 'SOLD OUT' then
        AskOnce('cancel', Key, 'reason_id', OutOfStock)
      else
        Accept(Order);
    end;
    Commit;
  except
    Rollback;
    raise;
  end;
end;

function TakeNew: Integer;
var
  Order: TRow;
begin
  Result := 0;
  for Order in Rows(Orders + ' FROM delivery_new_orders ORDER BY received_utc, payment_key', []) do
    if TakeOver(Order) then
      Inc(Result);
end;

{ Print the scheduled orders that are now due. }
procedure TakeScheduled;
var
  Order: TRow;
  Ticket: string;
begin
  for Order in Rows(Orders + ' FROM delivery_open_orders AS due WHERE ' + Ours + ' AND COALESCE(is_later, ''0'') = ''0''' +
    ' AND EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = ''LATER'')' +
    ' AND NOT EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = ''NOW'')', []) do
  begin
    Ticket := TicketText(Order, 'NOW', Order.Text('pos_reference'));
    BeginNow;
    try
      Remember(Order, 'NOW', Ticket);
      Accept(Order);
      Commit;
    except
      Rollback;
      raise;
    end;
  end;
end;

{ Which paper a change brings: '' for none. }
function PaperFor(const Order: TRow): string;
var
  Last: TRows;
  Told: string;
begin
  Result := '';
  if Order.Text('ended_utc') <> '' then { first, because an ended order is never cooked }
  begin
    Run('DELETE FROM till_papers WHERE payment_key = :k AND paper = ''waits''', [Order.Text('payment_key')]);
    Run('UPDATE till_papers SET paper = ''out'' WHERE payment_key = :k AND paper = ''begun''', [Order.Text('payment_key')]);
  end;
  Last := Rows('SELECT kind, revision FROM till_papers WHERE payment_key = :k ORDER BY rowid DESC LIMIT 1',
    [Order.Text('payment_key')]);
  if Length(Last) > 0 then
    Told := Last[0].Text('kind')
  else
    Told := '';
  if Order.Text('ended_utc') <> '' then
  begin
    { SOLD OUT: our own cancel, before the kitchen cooked; its result is shown anyway. }
    if (Order.Text('ended_by') = 'cancelled') and not AnsiMatchStr(Told, ['', 'STOP', 'SOLD OUT']) then
      Result := 'STOP';
  end
  else if AnsiMatchStr(Told, ['', 'STOP']) or
    (StrToInt(Order.Text('contents_revision')) > StrToInt(Last[0].Text('revision'))) then
    Result := 'CHANGED'; { other items, notes or amounts }
end;

procedure TellKitchen(const Order: TRow; const Kind: string);
var
  Reference: string;
begin
  Reference := Order.Text('pos_reference');
  if Kind = 'STOP' then
    Remember(Order, Kind, 'STOP ' + Reference + LineEnding + '  cancelled: do not cook it, do not send it out')
  else if Kind <> '' then
    Remember(Order, Kind, TicketText(Order, Kind, Reference));
end;

{ Read our changed orders. The revision that we read and the kitchen's ticket are written together. }
procedure TakeChanged;
var
  Order: TRow;
begin
  for Order in Rows(Orders + Changed + ' ORDER BY changed_utc, payment_key', []) do
  begin
    BeginNow;
    try
      if Run('UPDATE delivery_orders SET pos_revision = :r WHERE payment_key = :k AND pos_revision < :s',
        [Order.Text('revision'), Order.Text('payment_key'), Order.Text('revision')]) > 0 then
        TellKitchen(Order, PaperFor(Order));
      Commit;
    except
      Rollback;
      raise;
    end;
    Say(Order.Text('pos_reference') + ': ' + Order.Text('status') + IfThen(Order.Text('ended_utc') = '', '', ', over'));
  end;
end;

{ Show the cashier the result of each of our rows, failures with an alarm. }
procedure ShowVerdicts;
var
  Row: TRow;
  Loud: string;
begin
  for Row in Rows('SELECT asked.request_id, action, state, error_text,' +
    ' '''' || COALESCE(pos_reference, food_id, actions.restaurant_id) AS about FROM till_asked AS asked' +
    ' JOIN delivery_actions AS actions ON actions.request_id = asked.request_id' +
    ' LEFT JOIN delivery_orders AS orders ON orders.payment_key = actions.payment_key' +
    ' WHERE till = ''' + Till + ''' AND state NOT IN (''pending'', ''sending'') ORDER BY actions.id', []) do
  begin
    Loud := IfThen(AnsiMatchStr(Row.Text('state'), ['refused', 'failed', 'expired']), '!!! ', '');
    Say(TrimRight(Loud + Row.Text('action') + ' ' + Row.Text('about') + ': ' + Row.Text('state') + ' ' +
      Row.Text('error_text')));
    Run('DELETE FROM till_asked WHERE request_id = :r', [Row.Text('request_id')]);
  end;
end;

{ Show changes of the lamp of orderbridge itself. It is correct even if the daemon is dead. }
procedure ShowLamps;
var
  Row: TRow;
  Now: TStringList;
  Words: string;
begin
  Now := TStringList.Create;
  for Row in Rows(Lamps, []) do
  begin
    Words := TrimRight('lamp ' + Row.Text('lamp') + ', ' + Row.Text('account') + ': ' + Row.Text('sentence') + ' ' +
      Row.Text('remedy'));
    if (LampsShown.IndexOf(Words) < 0) and ((LampsShown.Count > 0) or (Row.Text('lamp') <> 'green')) then
      Say(Words);
    Now.Add(Words);
  end;
  LampsShown.Free;
  LampsShown := Now;
end;

{ -1: until it is stopped. }
procedure RunTill(Orders: Integer);
var
  Taken: Integer;
begin
  { A ticket has customers' data: orderbridge blanks its own 90 days after the end, too. }
  Run('DELETE FROM till_papers WHERE payment_key IN' +
    ' (SELECT payment_key FROM delivery_orders WHERE ended_utc < datetime(''now'', ''-90 days''))', []);
  Taken := 0;
  while True do
  begin
    try
      TakeChanged;
      Taken := Taken + TakeNew;
      TakeScheduled;
      PrintWaiting;
      ShowVerdicts;
      ShowLamps;
    except
      on Error: EDatabaseError do { perhaps a long lock: the next round tries again }
        Say('!!! ' + Error.Message);
    end;
    if (Orders >= 0) and (Taken >= Orders) and (Length(Rows('SELECT 1 FROM till_asked WHERE till = ''' + Till + '''' +
      ' UNION ALL SELECT 1' + Changed, [])) = 0) then
      Exit;
    Sleep(LookMs);
  end;
end;

{ ---- a person's actions ---- }

{ It ends with 1 and a sentence if it failed, with 64 for an unknown action. }
procedure Wrong(const Sentence: string; Code: Integer);
begin
  WriteLn(StdErr, Sentence);
  Halt(Code);
end;

{ A new try has a new request_id: …, …-2, …-3. A double click is not a new try: it finds the first one's row. }
procedure Click(const Verb, Action, Column, Column2: string);
var
  Tries: TRows;
  Request, State: string;
  IsOrder: Boolean;
begin
  IsOrder := Column = 'payment_key';
  Request := Verb + '-' + ParamStr(3);
  if not IsOrder and (Column2 <> '') then
    Request := Request + '-' + ParamStr(4);
  BeginNow;
  try
    Tries := Rows('SELECT CASE WHEN EXISTS (SELECT 1 FROM delivery_actions AS newer WHERE newer.id > mine.id' +
      ' AND newer.restaurant_id = mine.restaurant_id AND newer.food_id IS mine.food_id)' +
      ' THEN ''switched back'' ELSE state END AS state,' +
      ' finished_utc > datetime(''now'', ''-10 seconds'') AS is_fresh FROM delivery_actions AS mine' +
      ' WHERE request_id = :r OR request_id LIKE :s || ''-%'' ORDER BY id', [Request, Request]);
    State := '';
    if Length(Tries) > 0 then
      State := Tries[High(Tries)].Text('state');
    { An order is accepted once. A restaurant may be opened again tomorrow, but not twice by a double click. }
    if AnsiMatchStr(State, ['pending', 'sending']) or
      ((State = 'done') and (IsOrder or (Tries[High(Tries)].Text('is_fresh') = '1'))) then
      Say('asked already: ' + State)
    else
    begin
      if Length(Tries) > 0 then
        Request := Request + '-' + IntToStr(Length(Tries) + 1);
      Ask(Request, Action, Column, ParamStr(3), Column2, ParamStr(4));
    end;
    Commit;
  except
    on Error: EDatabaseError do
    begin
      Rollback;
      Wrong('refused: ' + Error.Message, 1); { an error of the program or a wrong argument }
    end;
  end;
end;

procedure Step(const Verb, Key: string);
var
  Order: TRows;
  Row: TRow;
  I: Integer;
begin
  Order := Rows(Orders + ' FROM delivery_orders WHERE payment_key = :k', [Key]);
  for I := Low(Verbs) to High(Verbs) do
    if (Verbs[I, 1] = Verb) and (ParamCount = IfThen(Verbs[I, 4] = '', '3', '4').ToInteger) then
    begin
      if (Verbs[I, 3] = 'payment_key') and (Length(Order) = 0) then
        Wrong('no such order', 1);
      if (Verb = 'on_the_way') and not AnsiMatchStr(Order[0].Text('courier_type'), ['', 'restaurant']) then
        Wrong('the restaurant does not bring it: ' + Order[0].Text('courier_type'), 1);
      Click(Verb, Verbs[I, 2], Verbs[I, 3], Verbs[I, 4]);
      Exit;
    end;
  if (Length(Order) = 0) or not AnsiMatchStr(Verb, ['ticket', 'collect', 'withdraw']) then
    Wrong('no such order or no such verb; the head of this file has them', 64);
  if Verb = 'collect' then
    Say(Order[0].Text('collect'))
  else if Verb = 'ticket' then
    for Row in Rows('SELECT ticket FROM till_papers WHERE payment_key = :k AND paper <> ''waits'' ORDER BY rowid', [Key]) do
      Say(Row.Text('ticket'))
  else if Run('UPDATE delivery_actions SET withdraw = 1 WHERE payment_key = :k' +
    ' AND state IN (''pending'', ''sending'')', [Key]) = 0 then
    Say('nothing of it waits');
end;

var
  Table: string;
begin
  {$ifdef linux}SQLiteDefaultLibrary := 'libsqlite3.so.0';{$endif}
  if not FileExists(ParamStr(1)) then { never create an empty file }
    Wrong('no such file; the head of this one says how it is started', 1);
  LampsShown := TStringList.Create;
  Connection := TSQLite3Connection.Create(nil);
  Transaction := TSQLTransaction.Create(nil);
  Connection.DatabaseName := ParamStr(1);
  Connection.Transaction := Transaction;
  Connection.CharSet := 'UTF8';
  Transaction.Options := [stoUseImplicit]; { a transaction begins where the code says BEGIN }
  Connection.Open;
  Connection.ExecuteDirect('PRAGMA busy_timeout = 5000'); { how long to wait for the daemon's transactions }
  BeginNow; { so that no other till makes the tables at the same time }
  for Table in Tables do
    Connection.ExecuteDirect(Table);
  Commit;
  if (ParamCount > 1) and (ParamStr(2) <> '--orders') then
    Step(ParamStr(2), ParamStr(3))
  else
    RunTill(StrToIntDef(ParamStr(3), -1));
  Connection.Free;
  Transaction.Free;
  LampsShown.Free;
end.
