{ A mini POS for orderbridge. Free Pascal 3.2 or Lazarus, and SQLite's library.

    fpc pos.pas
    ./pos DATABASE ACCOUNT FOOD_ID [ORDERS]

  It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
  other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
  without, it runs until it is stopped. Several may run on one file, and each may be stopped at any moment.

  In Delphi the same statements go through FireDAC; set LockingMode=Normal and BusyTimeout=5000 in the connection's
  parameters, for FireDAC opens a SQLite file for itself alone by default. }
program pos;

{$mode objfpc}{$H+}
{$codepage utf8}

uses
  {$ifdef unix}cwstring,{$endif} SysUtils, Classes, DB, SQLDB, SQLite3Conn, SQLite3Dyn;

const
  LookMs = 500;
  ReadyInMinutes = 25;
  OutOfStock = 1; { delivery_cancel_reasons }

var
  Connection: TSQLite3Connection;
  Transaction: TSQLTransaction;
  Waiting: TStringList; { the ids of our rows without a verdict }
  FoodId: Int64;

{ How many rows it wrote. }
function Run(const Sql: string; const Values: array of Variant): Integer;
var
  Query: TSQLQuery;
  I: Integer;
begin
  Query := TSQLQuery.Create(nil);
  try
    Query.DataBase := Connection;
    Query.Transaction := Transaction;
    Query.SQL.Text := Sql;
    for I := 0 to High(Values) do
      Query.Params[I].Value := Values[I];
    Query.ExecSQL;
    Result := Query.RowsAffected;
  finally
    Query.Free;
  end;
end;

function Opened(const Sql: string; const Values: array of Variant): TSQLQuery;
var
  I: Integer;
begin
  Result := TSQLQuery.Create(nil);
  Result.DataBase := Connection;
  Result.Transaction := Transaction;
  Result.SQL.Text := Sql;
  Result.PacketRecords := -1; { read all rows at once: what we write below must not meet an open cursor }
  for I := 0 to High(Values) do
    Result.Params[I].Value := Values[I];
  Result.Open;
end;

{ NULL: the service did not say. }
function Said(Row: TSQLQuery; const Column: string): string;
begin
  if Row.FieldByName(Column).IsNull then
    Result := '?'
  else
    Result := Row.FieldByName(Column).AsString;
end;

procedure ShowIfAny(const Words: string; Row: TSQLQuery; const Column: string);
begin
  if Row.FieldByName(Column).AsString <> '' then
    WriteLn(Words, Row.FieldByName(Column).AsString);
end;

{ What to collect, what to cook, and what else to know. }
procedure Show(Order: TSQLQuery);
var
  Item, Option: TSQLQuery;
begin
  if Order.FieldByName('amount_due').IsNull then { no 0: nobody knows }
    Write('  ask what to collect')
  else
    Write('  collect ', Order.FieldByName('amount_due').AsFloat:0:2);
  WriteLn(', ', Said(Order, 'payment_method'));
  ShowIfAny('  not now: for ', Order, 'scheduled_for');
  ShowIfAny('  look at it in the service''s panel: ', Order, 'problem');
  ShowIfAny('  note: ', Order, 'note');
  Item := Opened('SELECT * FROM delivery_order_items WHERE payment_key = :k ORDER BY line_no',
    [Order.FieldByName('payment_key').AsString]);
  try
    while not Item.EOF do
    begin
      WriteLn('  ', Said(Item, 'quantity'), ' x ', Said(Item, 'name'));
      Option := Opened('SELECT * FROM delivery_order_item_options WHERE payment_key = :k AND line_no = :l' +
        ' ORDER BY option_no', [Item.FieldByName('payment_key').AsString, Item.FieldByName('line_no').AsInteger]);
      try
        while not Option.EOF do
        begin
          WriteLn('    ', Said(Option, 'operation'), ' ', Said(Option, 'group_name'), ': ',
            Said(Option, 'option_name'));
          Option.Next;
        end;
      finally
        Option.Free;
      end;
      ShowIfAny('    note: ', Item, 'note');
      Item.Next;
    end;
  finally
    Item.Free;
  end;
end;

{ The ids that a query finds are waited for. }
procedure WaitFor(const Sql: string; const Values: array of Variant);
var
  Query: TSQLQuery;
begin
  Query := Opened(Sql, Values);
  try
    while not Query.EOF do
    begin
      Waiting.Add(Query.FieldByName('id').AsString);
      Query.Next;
    end;
  finally
    Query.Free;
  end;
end;

{ A row in the outbox. What was asked for under the same request_id is not asked for again. }
procedure Ask(const Action, Key, Argument: string; Value: Integer);
const
  Same = 'SELECT id FROM delivery_actions WHERE request_id = :r';
var
  Asked: TSQLQuery;
begin
  Asked := Opened(Same, [Action + '-' + Key]);
  try
    if Asked.EOF then
      Run('INSERT INTO delivery_actions (request_id, action, payment_key, ' + Argument +
        ', created_by) VALUES (:r, :a, :k, :v, ''mini POS'')', [Action + '-' + Key, Action, Key, Value]);
  finally
    Asked.Free;
  end;
  WaitFor(Same, [Action + '-' + Key]);
end;

{ Whether the order is ours now: taken over, and asked for what becomes of it, in one transaction. }
function TakeOver(Order: TSQLQuery; const Key, Reference: string): Boolean;
var
  Item: TSQLQuery;
  SoldOut: Boolean;
begin
  Item := Opened('SELECT 1 FROM delivery_order_items WHERE payment_key = :k AND food_id = :f', [Key, FoodId]);
  try
    SoldOut := not Item.EOF;
  finally
    Item.Free;
  end;
  Connection.ExecuteDirect('BEGIN IMMEDIATE'); { a deferred BEGIN fails at once beside another writer }
  try
    Result := Run('UPDATE delivery_orders SET pos_revision = :r, pos_reference = :p' +
      ' WHERE payment_key = :k AND pos_revision = 0', [Order.FieldByName('revision').AsInteger, Reference, Key]) > 0;
    if Result and (Order.FieldByName('status').AsString = 'RECEIVED') then { nobody has answered the customer yet }
      if SoldOut then
        Ask('cancel', Key, 'reason_id', OutOfStock)
      else
        Ask('accept', Key, 'preparing_time', ReadyInMinutes);
    Connection.ExecuteDirect('COMMIT');
  except
    Connection.ExecuteDirect('ROLLBACK');
    raise;
  end;
end;

{ Take each new order over. Only then print it. }
function TakeNew: Integer;
var
  Order: TSQLQuery;
  Reference: string;
begin
  Result := 0;
  Order := Opened('SELECT * FROM delivery_new_orders ORDER BY received_utc, payment_key', []);
  try
    while not Order.EOF do
    begin
      Reference := 'A-' + Order.FieldByName('order_number').AsString;
      if TakeOver(Order, Order.FieldByName('payment_key').AsString, Reference) then
      begin { otherwise another till has it, and prints it }
        WriteLn('new ', Reference);
        Show(Order);
        Inc(Result);
      end;
      Order.Next;
    end;
  finally
    Order.Free;
  end;
end;

{ An earlier run may have stopped before it had printed what it took over: show it again. }
procedure ShowOpen;
var
  Order: TSQLQuery;
begin
  Order := Opened('SELECT * FROM delivery_open_orders WHERE pos_reference LIKE ''A-%'' ORDER BY received_utc, payment_key', []);
  try
    while not Order.EOF do
    begin
      WriteLn('open ', Order.FieldByName('pos_reference').AsString, ': ', Order.FieldByName('status').AsString);
      Show(Order);
      Order.Next;
    end;
  finally
    Order.Free;
  end;
end;

{ Show what became of the orders that we have, and note the revision that we have shown. }
procedure ShowChanged;
var
  Order: TSQLQuery;
  Revision: Integer;
begin
  Order := Opened('SELECT * FROM delivery_changed_orders WHERE pos_reference LIKE ''A-%'' ORDER BY changed_utc', []);
  try
    while not Order.EOF do
    begin
      WriteLn('changed ', Order.FieldByName('pos_reference').AsString, ': ', Order.FieldByName('status').AsString,
        ' (', Order.FieldByName('last_change').AsString, ')');
      Revision := Order.FieldByName('revision').AsInteger;
      if not Order.FieldByName('ended_utc').IsNull then { what is over is never printed to be cooked }
        WriteLn('  STOP: ', Order.FieldByName('ended_by').AsString)
      else if Order.FieldByName('contents_revision').AsInteger > Order.FieldByName('pos_revision').AsInteger then
        Show(Order); { other items, notes or money than we have printed }
      { One statement is a transaction of its own, and waits for its turn. }
      Run('UPDATE delivery_orders SET pos_revision = :r WHERE payment_key = :k',
        [Revision, Order.FieldByName('payment_key').AsString]);
      Order.Next;
    end;
  finally
    Order.Free;
  end;
end;

{ Tell the cashier how each row ended. }
procedure ShowVerdicts;
var
  Row: TSQLQuery;
  About: string;
  I: Integer;
begin
  for I := Waiting.Count - 1 downto 0 do
  begin
    Row := Opened('SELECT action, food_id, pos_reference, state, error_text FROM delivery_actions' +
      ' LEFT JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key' +
      ' WHERE id = :i AND state NOT IN (''pending'', ''sending'')', [StrToInt64(Waiting[I])]);
    try
      if not Row.EOF then
      begin
        About := Row.FieldByName('pos_reference').AsString + Row.FieldByName('food_id').AsString; { one is empty }
        WriteLn(TrimRight('verdict ' + Row.FieldByName('action').AsString + ' ' + About + ': ' +
          Row.FieldByName('state').AsString + ' ' + Row.FieldByName('error_text').AsString));
        Waiting.Delete(I);
      end;
    finally
      Row.Free;
    end;
  end;
end;

var
  Orders, Taken: Integer;
begin
  {$ifdef linux}SQLiteDefaultLibrary := 'libsqlite3.so.0';{$endif}
  FoodId := StrToInt64(ParamStr(3));
  Orders := StrToIntDef(ParamStr(4), 0);
  Waiting := TStringList.Create;
  Connection := TSQLite3Connection.Create(nil);
  Transaction := TSQLTransaction.Create(nil);
  Connection.DatabaseName := ParamStr(1);
  Connection.Transaction := Transaction;
  Connection.CharSet := 'UTF8';
  Transaction.Options := [stoUseImplicit]; { a transaction begins where the code says BEGIN }
  Connection.Open;
  Connection.ExecuteDirect('PRAGMA busy_timeout = 5000'); { wait that long for the daemon's transactions }
  ShowOpen;
  Run('INSERT INTO delivery_actions (action, account, food_id, created_by)' +
    ' VALUES (''deactivate_food'', :a, :f, ''mini POS'')', [ParamStr(2), FoodId]);
  { An earlier run's rows are among them. }
  WaitFor('SELECT id FROM delivery_actions WHERE created_by = ''mini POS'' AND state IN (''pending'', ''sending'')', []);
  Taken := 0;
  while True do
  begin
    Taken := Taken + TakeNew;
    ShowVerdicts;
    ShowChanged;
    Flush(Output);
    if (Orders > 0) and (Taken >= Orders) and (Waiting.Count = 0) then
      Break;
    Sleep(LookMs);
  end;
  Transaction.Free;
  Connection.Free;
  Waiting.Free;
end.
