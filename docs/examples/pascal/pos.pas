{ A mini POS for orderbridge. Free Pascal 3.2 or Lazarus, and SQLite's library.

    fpc pos.pas
    ./pos DATABASE ACCOUNT FOOD_ID [ORDERS]

  It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
  other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
  without, it runs until it is stopped.

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
  Waiting: TStringList; { our rows without a verdict: id=what we call it }
  FoodId: Int64;

procedure Run(const Sql: string; const Values: array of Variant);
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

{ A row in the outbox. A constraint that it breaks is an error of this program, and raises. }
procedure Ask(const Words, Action, About: string; const Id: Variant; const Argument: string; const Value: Variant);
var
  Query: TSQLQuery;
begin
  Run('INSERT INTO delivery_actions (action, created_by, ' + About + ', ' + Argument +
    ') VALUES (:a, ''mini POS'', :i, :v)', [Action, Id, Value]);
  Query := Opened('SELECT last_insert_rowid() AS id', []);
  try
    Waiting.Values[Query.FieldByName('id').AsString] := Words;
  finally
    Query.Free;
  end;
end;

{ Print each new order, then say that we have it and what becomes of it, in one transaction. }
function TakeNew: Integer;
var
  Order, Item: TSQLQuery;
  Key, Reference: string;
  SoldOut: Boolean;
begin
  Result := 0;
  Order := Opened('SELECT payment_key, revision, order_number, status, payment_method,' +
    ' COALESCE(ROUND(total, 2), 0) AS total, problem FROM delivery_new_orders ORDER BY received_utc', []);
  try
    while not Order.EOF do
    begin
      Key := Order.FieldByName('payment_key').AsString;
      Reference := 'A-' + Order.FieldByName('order_number').AsString;
      WriteLn('new ', Reference, ': ', Order.FieldByName('total').AsFloat:0:2, ' ',
        Order.FieldByName('payment_method').AsString);
      if not Order.FieldByName('problem').IsNull then
        WriteLn('  look at it in the service''s panel: ', Order.FieldByName('problem').AsString);
      SoldOut := False;
      Item := Opened('SELECT quantity, name, food_id FROM delivery_order_items WHERE payment_key = :k ORDER BY line_no',
        [Key]);
      try
        while not Item.EOF do
        begin
          WriteLn('  ', Item.FieldByName('quantity').AsString, ' x ', Item.FieldByName('name').AsString);
          SoldOut := SoldOut or (Item.FieldByName('food_id').AsLargeInt = FoodId);
          Item.Next;
        end;
      finally
        Item.Free;
      end;
      Connection.ExecuteDirect('BEGIN IMMEDIATE'); { a deferred BEGIN fails at once beside another writer }
      try
        Run('UPDATE delivery_orders SET pos_revision = :r, pos_reference = :p WHERE payment_key = :k',
          [Order.FieldByName('revision').AsInteger, Reference, Key]);
        if Order.FieldByName('status').AsString = 'RECEIVED' then { nobody has answered the customer yet }
          if SoldOut then
            Ask('cancel ' + Reference, 'cancel', 'payment_key', Key, 'reason_id', OutOfStock)
          else
            Ask('accept ' + Reference, 'accept', 'payment_key', Key, 'preparing_time', ReadyInMinutes);
        Connection.ExecuteDirect('COMMIT');
      except
        Connection.ExecuteDirect('ROLLBACK');
        raise;
      end;
      Inc(Result);
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
begin
  Order := Opened('SELECT payment_key, revision, pos_reference, status, last_change' +
    ' FROM delivery_changed_orders ORDER BY changed_utc', []);
  try
    while not Order.EOF do
    begin
      WriteLn('changed ', Order.FieldByName('pos_reference').AsString, ': ', Order.FieldByName('status').AsString,
        ' (', Order.FieldByName('last_change').AsString, ')');
      { One statement is a transaction of its own, and waits for its turn. }
      Run('UPDATE delivery_orders SET pos_revision = :r WHERE payment_key = :k',
        [Order.FieldByName('revision').AsInteger, Order.FieldByName('payment_key').AsString]);
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
  I: Integer;
begin
  for I := Waiting.Count - 1 downto 0 do
  begin
    Row := Opened('SELECT state, error_text FROM delivery_actions WHERE id = :i' +
      ' AND state NOT IN (''pending'', ''sending'')', [StrToInt64(Waiting.Names[I])]);
    try
      if not Row.EOF then
      begin
        WriteLn(TrimRight('verdict ' + Waiting.ValueFromIndex[I] + ': ' + Row.FieldByName('state').AsString + ' ' +
          Row.FieldByName('error_text').AsString));
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
  Ask('deactivate_food ' + IntToStr(FoodId), 'deactivate_food', 'food_id', FoodId, 'account', ParamStr(2));
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
