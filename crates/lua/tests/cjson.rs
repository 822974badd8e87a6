//! The modules `cjson` and `cjson.safe` of the layer `ngx`, which do what lua-cjson of OpenResty does.
//! In: values and texts. Out: results of the modules.

mod harness;

use harness::App;

/// Runs statements that check something by themselves. `is(a, b)` compares.
fn check(statements: &str) {
    let content = format!(
        "local cjson, safe = require('cjson').new(), require('cjson.safe').new()
        local function is(actual, expected)
            if actual ~= expected then error(tostring(actual) .. ', expected ' .. tostring(expected), 2) end
        end
        local function fails(f, ...)
            local ok, err = pcall(f, ...)
            assert(not ok and type(err) == 'string', 'it succeeds')
        end
        {statements}
        ngx.print('passed')"
    );
    let mut app = App::load_ngx(&content, &[], &[]).unwrap_or_else(|failure| panic!("{failure}"));
    let (end, response) = app.get("/");
    assert_eq!(response, Some((200, "passed".to_owned())), "{end:?}");
}

#[test]
fn encode_and_decode_return_one_value() {
    check(
        "is(select('#', cjson.encode({ a = 1 })), 1)
        is(select('#', cjson.decode('{}')), 1)
        is(select('#', safe.encode({ a = 1 })), 1)
        is(select('#', safe.decode('false')), 1)
        is(safe.decode('false'), false)
        is(safe.decode('null'), cjson.null)
        is(cjson.decode(5), 5)
        is(cjson.encode(nil), 'null')
        is(select('#', safe.decode('{')), 2)
        is(type(select(2, safe.decode('{'))), 'string')
        is(select('#', safe.encode(print)), 2)
        for _, value in ipairs { print, { [true] = 1 }, { [1] = 1, [100] = 2 }, 1 / 0 } do
            fails(cjson.encode, value)
            is(safe.encode(value), nil)
        end
        fails(cjson.decode, '{')
        fails(cjson.decode)
        fails(cjson.encode)
        fails(cjson.encode, 1, 2)",
    );
    let mut app =
        App::load_ngx("ngx.say(require('cjson').encode({ a = 1 }))", &[], &[]).expect("it loads");
    assert_eq!(app.get("/").1, Some((200, "{\"a\":1}\n".to_owned())));
}

#[test]
fn arrays_are_recognized_as_lua_cjson_does() {
    check(
        "is(cjson.encode({ 1, 2, nil, 4 }), '[1,2,null,4]')
        is(cjson.encode({ [3] = 'x' }), '[null,null,\"x\"]')
        is(cjson.encode({ [10] = 1 }), '[null,null,null,null,null,null,null,null,null,1]')
        fails(cjson.encode, { [11] = 1 })
        is(cjson.encode({}), '{}')
        is(cjson.encode({ [1] = 1, x = 2 }):sub(1, 1), '{')
        is(cjson.encode({ [1.5] = 1 }), '{\"1.5\":1}')
        is(cjson.encode({ [0] = 1 }), '{\"0\":1}')
        is(cjson.encode({ cjson.empty_array }), '[[]]')
        is(cjson.encode(setmetatable({}, cjson.empty_array_mt)), '[]')
        is(cjson.encode(setmetatable({ a = 1 }, cjson.empty_array_mt)), '{\"a\":1}')
        is(cjson.encode(setmetatable({ 7, x = 1 }, cjson.array_mt)), '[7]')
        is(cjson.encode(cjson.decode('[]')), '{}')
        is(getmetatable(cjson.decode('[1]')), nil)
        is(select('#', cjson.encode_sparse_array()), 3)
        cjson.encode_sparse_array(true)
        is(cjson.encode({ [1000] = 1 }), '{\"1000\":1}')
        cjson.encode_sparse_array(false, 0)
        is(#cjson.encode({ [1000] = 1 }), 999 * 5 + 3)
        fails(cjson.encode, { [2^40] = 1 })
        is(cjson.encode_empty_table_as_object(false), false)
        is(cjson.encode({ {} }), '[[]]')
        is(safe.encode({ {} }), '[{}]')
        cjson.decode_array_with_array_mt(true)
        is(cjson.encode(cjson.decode('{\"a\":[]}')), '{\"a\":[]}')",
    );
}

#[test]
fn numbers_and_texts_are_written_as_lua_cjson_does() {
    check(
        "is(cjson.encode({ 0.1, 1 / 3, 1e15, 123456789012, -5, 2^53, 1e-7 }),
            '[0.1,0.33333333333333,1e+15,123456789012,-5,9.007199254741e+15,1e-07]')
        is(cjson.encode_number_precision(), 14)
        cjson.encode_number_precision(3)
        is(cjson.encode({ 1 / 3, 1234 }), '[0.333,1.23e+03]')
        fails(cjson.encode_number_precision, 17)
        is(cjson.encode('a/b\\8\\12\\127\\31'), '\"a\\\\/b\\\\b\\\\f\\\\u007f\\\\u001f\"')
        cjson.encode_escape_forward_slash(false)
        is(cjson.encode('a/b'), '\"a/b\"')
        fails(cjson.encode, 0 / 0)
        cjson.encode_invalid_numbers('null')
        is(cjson.encode({ 0 / 0, 1 / 0 }), '[null,null]')
        cjson.encode_invalid_numbers(true)
        is(cjson.encode({ 1 / 0, -1 / 0 }), '[Infinity,-Infinity]')
        cjson.encode_max_depth(2)
        is(cjson.encode({ { 1 } }), '[[1]]')
        fails(cjson.encode, { { { 1 } } })
        cjson.decode_max_depth(2)
        fails(cjson.decode, '[[[1]]]')
        is(cjson.decode('[[1]]')[1][1], 1)
        local deep = {}
        for _ = 1, 200 do deep = { deep } end
        fails(require('cjson').encode, deep)",
    );
}
